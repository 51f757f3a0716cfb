"""The tree of subcommands, read from the dataclasses that define them."""

import functools
import json
import operator
import os
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

import caunet
from caunet.cli import (
    align,
    bench,
    data,
    estimate,
    estimate_many,
    evaluate,
    export,
    models,
    reproduce,
    serve,
    train,
    train_matcher,
    weights,
)
from caunet.registry import IMPORT, import_named

__all__ = ["Command", "command_names", "parse"]

_ABOUT = """Estimate the transformation between two images, and train the networks that do it.

Start with `caunet estimate a.png b.png --overlay overlay.png` (two images of your own), with
`caunet reproduce --profile quick` (the paper's networks on embedded photographs) or with
`caunet data show --task rotation --out sample.png` (the pairs they are trained on).

Tasks, units and networks of your own: with any command, `--import MODULE` (or CAUNET_IMPORT=MODULE) imports the module
that registers them."""


class Command(Protocol):
    """What every subcommand is: arguments that can be run."""

    def run(self) -> int:
        """Do it and return the exit code."""
        ...


def parse(arguments: Sequence[str]) -> Command:
    """The subcommand that ``arguments`` ask for; wrong ones end the program with code 2 and a message."""
    if list(arguments) == ["--version"]:
        return _Version()
    arguments = _import_modules(arguments)
    if not arguments:
        arguments = ["--help"]
    command: Command = tyro.cli(
        _tree(arguments),
        prog="caunet",
        description=_ABOUT,
        args=list(arguments),
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
        registry=_registry(),
        console_outputs=os.environ.get("RANK", "0") == "0",  # under torchrun one process speaks
    )
    return command


def _import_modules(arguments: Sequence[str]) -> list[str]:
    """Import what ``--import`` names, and return the other arguments. Worker processes are told, too."""
    left, wanted = [], []
    words = iter(arguments)
    for word in words:
        if word == "--import" or word.startswith("--import="):
            value = word.partition("=")[2] or next(words, "")
            if not value or value.startswith("-"):
                raise ValueError("--import must be followed by the name of a module, such as my_units")
            wanted += value.split(",")
        else:
            left.append(word)
    if wanted:
        for module in wanted:
            import_named(module)
        known = filter(None, os.environ.get(IMPORT, "").split(","))
        os.environ[IMPORT] = ",".join(dict.fromkeys([*known, *wanted]))
    return left


def command_names() -> list[tuple[str, ...]]:
    """Every command, as it is typed: ``("estimate",)``, ``("data", "fetch")``."""
    groups = {"data": data.COMMANDS, "bench": bench.COMMANDS, "weights": weights.COMMANDS}
    found: list[tuple[str, ...]] = []
    for member in typing.get_args(_tree([])):
        name = next(item.name for item in member.__metadata__ if hasattr(item, "name"))
        found += [(name, inner) for inner in groups[name]] if name in groups else [(name,)]
    return found


def _tree(arguments: Sequence[str]) -> Any:
    """The union of the subcommands; profile, model and task named in ``arguments`` decide the defaults shown."""
    groups: list[Any] = [
        Annotated[estimate.EstimateCommand, tyro.conf.subcommand("estimate")],
        Annotated[estimate_many.EstimateManyCommand, tyro.conf.subcommand("estimate-many")],
        Annotated[align.Align, tyro.conf.subcommand("align")],
        Annotated[serve.Serve, tyro.conf.subcommand("serve")],
        Annotated[
            _union(data.COMMANDS),
            tyro.conf.subcommand("data", description="Images and pairs: fetch, show, count."),
        ],
        Annotated[
            train.Train,
            tyro.conf.subcommand(
                "train",
                default=train.Train.for_profile(
                    *(_named(arguments, option) for option in ("--profile", "--model", "--task"))
                )
                if "train" in arguments
                else train.Train(),
            ),
        ],
        Annotated[train_matcher.TrainMatcher, tyro.conf.subcommand("train-matcher")],
        Annotated[evaluate.Evaluate, tyro.conf.subcommand("evaluate")],
        Annotated[reproduce.Reproduce, tyro.conf.subcommand("reproduce")],
        Annotated[models.Models, tyro.conf.subcommand("models")],
        Annotated[
            _union(bench.COMMANDS),
            tyro.conf.subcommand("bench", description="Registration beside other methods, on known pairs."),
        ],
        Annotated[export.Export, tyro.conf.subcommand("export")],
        Annotated[
            _union(weights.COMMANDS),
            tyro.conf.subcommand(
                "weights", description="Networks that come with the package: list, pack, upgrade; prune any."
            ),
        ],
    ]
    return functools.reduce(operator.or_, groups)


def _union(commands: Mapping[str, type]) -> Any:
    named = [Annotated[kind, tyro.conf.subcommand(name)] for name, kind in commands.items()]
    return functools.reduce(operator.or_, named)


def _named(arguments: Sequence[str], option: str) -> str | None:
    """The value of ``option`` in ``arguments``, written as ``--option value`` or ``--option=value``."""
    for word, following in zip(arguments, [*arguments, None][1:], strict=True):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return None


def _registry() -> ConstructorRegistry:
    """Options that are JSON objects, such as ``--model-options '{"bias": false}'``."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def mapping(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if typing.get_origin(info.type) is not Mapping:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="JSON",
            instance_from_str=lambda words: _object(words[0]),
            is_instance=lambda value: isinstance(value, Mapping),
            str_from_instance=lambda value: [json.dumps(value)],
        )

    return registry


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"must be JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object such as '{{\"bias\": false}}', got {text}")
    return value


class _Version:
    """``caunet --version``."""

    def run(self) -> int:
        print(f"caunet {caunet.__version__}")
        return 0
