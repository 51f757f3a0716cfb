"""``caunet weights``: the networks that come with the package, and how one gets there."""

import functools
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from caunet.models import RelationNetwork
    from caunet.training import TrainConfig

__all__ = ["COMMANDS", "List", "Measure", "Pack", "Prune", "Upgrade", "training_command"]


@dataclass(frozen=True)
class List:
    """List the networks that come with the package: what they are for, how good, how large.

    In Python: create_model("can", "rotation", pretrained=True), or load_pretrained("can-rotation").
    """

    json: bool = False
    """Print the model cards as JSON: data, recipe, command, commit, errors, hash."""
    markdown: bool = False
    """Print a table in Markdown."""
    fill: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Put that table into this file, between <!-- weights:begin --> and <!-- weights:end -->."""

    def run(self) -> int:
        """Print."""
        from caunet.models.pretrained import card, cards_table, list_pretrained

        cards = {name: card(name) for name in list_pretrained()}
        if self.fill is not None:
            from caunet.reproduction.tables import fill

            print(
                f"{self.fill} {'updated' if fill(self.fill, cards_table(), 'weights') else 'was up to date'}"
            )
        elif self.json:
            print(json.dumps(cards, indent=2))
        elif self.markdown:
            print(cards_table())
        elif not cards:
            print("This package has no weights.")
        else:
            _show(cards)
        return 0


@dataclass(frozen=True)
class Pack:
    """Make a finished run one of the networks that come with the package.

    It is measured on the test pairs of its run, in full and in half precision; if half precision costs more than 1 %
    it is refused. Then NAME.safetensors and NAME.json, its card, are written.

    Example: caunet weights pack runs/can-rotation-text-seed0 can-rotation
    """

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of a finished run."""
    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """MODEL-TASK, such as can-rotation; that is how create_model finds it."""
    precision: Literal["float16", "float32"] = "float16"
    """What is stored."""
    pairs: int | None = None
    """Measure on so many test pairs instead of all."""
    out: Path | None = None
    """Write to this directory instead of the package's own."""
    command: str | None = None
    """The line that trains it, for the card; default: made from the run's settings."""
    note: str = ""
    """A sentence for the card."""

    def run(self) -> int:
        """Measure, write, print."""
        from caunet.models.packing import pack

        config = _config(self.run_dir)
        card = pack(
            self.run_dir,
            self.name,
            lambda model: self._measure(model, config),
            command=self.command or training_command(config),
            precision=self.precision,
            folder=self.out,
            note=self.note,
        )
        before, after = (card["metrics"][kind]["parameter_error"] for kind in ("float32", self.precision))
        print(
            f"{self.name}  {card['bytes'] / 1e6:.2f} MB, {card['metrics']['float32']['pairs']:,} test pairs"
        )
        print(f"  parameter error {before:.5g}; as {self.precision} {after:.5g}")
        return 0

    def _measure(self, model: "RelationNetwork", config: "TrainConfig") -> Mapping[str, Any]:
        return _errors(model, config, self.pairs)


@dataclass(frozen=True)
class Measure:
    """Measure networks of the package again, on the test pairs of their runs, and complete their cards.

    A card gets the error and R² of each parameter, the weights that are not zero and, with --refine, the same errors of
    its answers refined by least squares on the patches. Errors that it has must come out again.

    Example: caunet weights measure can-projective --refine 10000
    """

    names: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="NAME")]
    """Networks of the package; `caunet weights list` names them."""
    refine: int | None = None
    """Also refine the answers to so many test pairs, and measure those."""

    def run(self) -> int:
        """Measure, write, print."""
        from caunet.models.packing import remeasure
        from caunet.models.pretrained import card
        from caunet.training import TrainConfig

        for name in self.names:
            config = TrainConfig.from_json(card(name)["config"])
            known = remeasure(
                name,
                functools.partial(_errors, config=config),
                refined=None if self.refine is None else functools.partial(self._refined, config=config),
            )
            kinds = {"": known["precision"], ", refined": "refined"}
            for told, kind in kinds.items():
                if each := known["metrics"].get(kind, {}).get("per_parameter"):
                    values = ", ".join(f"{parameter} {one['r2']:.3f}" for parameter, one in each.items())
                    print(f"{name}{told}  R² of {values}")
        return 0

    def _refined(self, model: "RelationNetwork", config: "TrainConfig") -> Mapping[str, Any]:
        from caunet.evaluation import evaluate
        from caunet.refinement import refined
        from caunet.training.loop import load_sources

        source = load_sources(config)[1]
        if source.protocol != "text" or source.task.dimensions != 2:
            raise ValueError(
                "refine must be left out for a network that was not trained on pairs text of the plane"
            )
        return evaluate(refined(model, source.task), source, limit=self.refine)


@dataclass(frozen=True)
class Prune:
    """Set the weights of a trained network to zero that hardly count; the file then holds the others alone.

    Example: caunet weights prune runs/mine/weights.safetensors small.safetensors --threshold 0.01
    """

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NETWORK")]
    """A name of the package (can-rotation), the directory of a run, or a file of weights."""
    target: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT")]
    """Where to write the pruned network."""
    threshold: float | None = None
    """Entries below this share of the largest in their row go."""
    keep: float | None = None
    """Below 1, the share of weights that stays; else how many non-zero numbers the network may have."""

    def run(self) -> int:
        """Prune, write, print."""
        from caunet.cli.evaluate import say_sizes, sizes
        from caunet.models import load_network, prune, save_weights

        model = prune(load_network(self.source), keep=self.keep, threshold=self.threshold)
        save_weights(model, self.target)
        print(say_sizes(sizes(model)))
        return 0


@dataclass(frozen=True)
class Upgrade:
    """Rewrite files of weights from before they carried a checksum; the tensors stay the same, bit for bit.

    A model card beside a file gets the new size and hash.

    Example: caunet weights upgrade runs/mine/weights.safetensors
    """

    files: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FILE")]
    """Files of weights."""

    def run(self) -> int:
        """Rewrite each file in place, and say so."""
        from caunet.models.upgrade import upgrade_weights

        for path in self.files:
            print(f"{path} {'upgraded' if upgrade_weights(path) else 'was up to date'}")
        return 0


def training_command(config: "TrainConfig") -> str:
    """The ``caunet train`` line of a run: what differs from the defaults.

    >>> from caunet.training import TrainConfig
    >>> training_command(TrainConfig(task="scaling", model="bln", updates=1000, model_options={"bias": False}))
    'caunet train --task scaling --model bln --model-options \\'{"bias": false}\\' --updates 1000'
    """
    from caunet.training import TrainConfig

    given, default = config.to_json(), TrainConfig().to_json()
    words = ["caunet", "train"]
    for name, value in given.items():
        if value == default[name] and name not in ("task", "model"):
            continue
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{name.replace('_', '-')}")
        else:
            words += [option, json.dumps(value) if isinstance(value, dict | list) else str(value)]
    return shlex.join(words)


def _errors(model: "RelationNetwork", config: "TrainConfig", pairs: int | None = None) -> Mapping[str, Any]:
    from caunet.evaluation import evaluate
    from caunet.training.loop import load_sources

    return evaluate(model, load_sources(config)[1], limit=pairs)


def _config(run_dir: Path) -> "TrainConfig":
    from caunet.errors import CheckpointError
    from caunet.training import TrainConfig

    path = run_dir / "config.json"
    try:
        return TrainConfig.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise CheckpointError(f"no {path}; name the directory of a finished run") from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error


def _show(cards: Mapping[str, Mapping[str, Any]]) -> None:
    from rich.console import Console

    from caunet.tables import Table

    rows = []
    for name, card in cards.items():
        errors = card["metrics"]["float32"]
        numbers = (
            f"{card['parameters']:,}",
            f"{errors['parameter_error']:.4g}",
            f"{errors['corner_error']:.3g}",
            f"{card['bytes'] / 1e6:.1f}",
        )
        rows.append([name, *numbers, f"{card['data']}, {card['protocol']}"])
    heads = ["name", "parameters", "parameter error", "corner px", "MB", "trained on"]
    title = "Networks that come with the package"
    table = Table(heads, "lrrrrl", rows, title=title, wrap=heads[1:])
    Console().print(table.rich())


COMMANDS: Mapping[str, type] = {
    "list": List,
    "pack": Pack,
    "measure": Measure,
    "prune": Prune,
    "upgrade": Upgrade,
}
"""The subcommands of ``caunet weights``, by name."""
