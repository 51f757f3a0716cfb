"""A run's directory: what is written there, and what may be continued from it.

======================  ==================================================================
config.json             the settings
metrics.jsonl           a line each ``log_every`` updates, and one each ``test_every``
checkpoints/            the last two states
weights.safetensors     the trained network
result.json             errors on all test pairs; only a finished run has it
======================  ==================================================================
"""

import contextlib
import json
import platform
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import caunet
from caunet.errors import CheckpointError, RunBusyError, TrainingError
from caunet.extras import require
from caunet.files import write_json, write_text
from caunet.locks import hold, owner
from caunet.models import RelationNetwork, save_weights
from caunet.provenance import commit
from caunet.training import checkpoint
from caunet.training.checkpoint import Checkpoint
from caunet.training.config import TrainConfig
from caunet.training.distributed import World
from caunet.training.metrics_log import read_metrics, scalars

__all__ = ["Run", "flat_errors"]

# What may differ between a checkpoint and the run that continues it: how long, how often, where; never what.
_FREE = {"updates", "log_every", "test_every", "test_pairs", "checkpoint_every", "device", "compile"}


class Run:
    """The directory of a run, written by the leading process alone.

    Args:
        folder: the directory.
        here: the processes of the run.
        images: fingerprints of the training and test images: a run continues on the images it began with.
        tensorboard: also write TensorBoard events.
    """

    def __init__(
        self, folder: Path, here: World, images: Mapping[str, str], tensorboard: bool = False
    ) -> None:
        self.folder, self.here, self.images = folder, here, dict(images)
        self._wants_events = tensorboard and here.leads
        if self._wants_events:
            require("tensorboard", "tensorboard", "Writing TensorBoard events")
        self._events: Any = None
        self.last_test: float | None = None
        self.last_tested: int | None = None

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self.folder / "checkpoints"

    @contextlib.contextmanager
    def open(self, config: TrainConfig, resume: bool | str) -> Iterator[tuple[Path, Checkpoint] | None]:
        """Begin the run (``None``) or find the state to continue; metrics after that state are dropped.

        The directory is locked until the end of the block.

        Raises:
            RunBusyError: another process works in the directory.
        """
        with contextlib.ExitStack() as held:
            # One process looks and all are given what it found: nobody reads a directory that another is changing,
            # and machines need not share it.
            yield self.here.on_rank0(lambda: self._open(config, resume, held))

    def _open(
        self, config: TrainConfig, resume: bool | str, held: contextlib.ExitStack
    ) -> tuple[Path, Checkpoint] | None:
        if resume in (True, "previous") and not self.folder.exists():
            raise CheckpointError(f"{self.folder} does not exist, so there is no checkpoint to resume")
        with self._in_one_sentence("begin a run in"):
            mine = held.enter_context(hold(self.folder))
        if not mine:
            pid = owner(self.folder)
            by = f"process {pid}" if pid else "another process"
            raise RunBusyError(
                f"{self.folder} is in use by {by}: wait until it ends, or choose another --out", pid
            )
        state = self._find(config, resume)
        with self._in_one_sentence("begin a run in"):
            write_json(self.folder / "config.json", config.to_json())
            self._cut_metrics(state[1].step if state else 0)
            if self._wants_events:
                self._events = _open_events(self.folder)
        return state

    def _find(self, config: TrainConfig, resume: bool | str) -> tuple[Path, Checkpoint] | None:
        found = checkpoint.find(self.checkpoints)
        if not resume:
            if found or (self.folder / "result.json").exists():
                raise TrainingError(
                    f"{self.folder} already has a run in it: add --resume, or choose another --out"
                )
            return None
        if not found and resume == "auto":
            return None
        index = 1 if resume == "previous" else 0
        if len(found) <= index:
            which = "no earlier checkpoint" if index else "no checkpoint"
            raise CheckpointError(f"{self.folder} has {which} to resume")
        try:
            state = checkpoint.load(found[index])
        except CheckpointError as error:
            earlier = (
                f"; to use {found[index + 1].name} instead, add --resume-previous"
                if len(found) > index + 1
                else ""
            )
            raise CheckpointError(f"{error}{earlier}") from error
        self._check_settings(config, state, found[index])
        self._check_images(state, found[index])
        return found[index], state

    @staticmethod
    def _check_settings(config: TrainConfig, state: Checkpoint, path: Path) -> None:
        # A setting that a checkpoint does not know yet had its default when the checkpoint was made.
        wanted, stored = config.to_json(), TrainConfig().to_json() | state.config
        for name in wanted:
            if name not in _FREE and wanted[name] != stored[name]:
                was, asked = repr(stored[name]), repr(wanted[name])
                raise CheckpointError(
                    f"{path} belongs to another run: its {name} is {was}, asked for is {asked}"
                )
        if state.step > config.updates:
            raise CheckpointError(
                f"{path} has made {state.step} updates already, asked for are {config.updates}"
            )

    def _check_images(self, state: Checkpoint, path: Path) -> None:
        stored = state.extra.get("images")
        for part, now in self.images.items():
            was = stored.get(part) if isinstance(stored, dict) else None
            if was != now:
                raise CheckpointError(
                    f"{path} was trained on other images: the fingerprint of its {part} images is "
                    f"{str(was)[:12]}, that of these is {now[:12]}"
                )

    def _cut_metrics(self, step: int) -> None:
        """Keep the lines up to ``step``; lines that something else has damaged are dropped, and named."""
        path = self.folder / "metrics.jsonl"
        damaged: list[int] = []
        kept = [line for line in read_metrics(path, damaged) if line["step"] <= step] if step else []
        if damaged:
            which = ", ".join(map(str, damaged[:10])) + (", ..." if len(damaged) > 10 else "")
            warnings.warn(
                f"{path}: dropped what cannot be read in line {which}; the run continues from its checkpoint",
                RuntimeWarning,
                stacklevel=2,
            )
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._remember(*kept)

    def _remember(self, *lines: Mapping[str, Any]) -> None:
        for line in lines:
            if "test" in line:
                self.last_test, self.last_tested = line["test"]["parameter_error"], line["step"]

    def record(self, **line: Any) -> None:
        """Append one line to metrics.jsonl."""
        if self.here.leads:
            with (
                self._in_one_sentence("write metrics to"),
                (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file,
            ):
                file.write(json.dumps(line) + "\n")
            self._remember(line)
            if self._events is not None:
                for name, value in scalars(line):
                    self._events.add_scalar(name, value, line["step"])

    def save(self, state: Checkpoint) -> Path:
        """Write a checkpoint."""
        with self._in_one_sentence("save a checkpoint in"):
            return checkpoint.save(self.checkpoints, state)

    def finish(
        self, config: TrainConfig, model: RelationNetwork, errors: Mapping[str, Any], seconds: float
    ) -> dict[str, Any]:
        """Write the trained weights and result.json. The checkpoints stay: more updates can follow."""
        settings = config.to_json()
        result = {
            name: settings[name] for name in ("protocol", "task", "model", "seed", "updates", "data", "pairs")
        }
        result |= flat_errors(errors)
        result |= {"seconds": round(seconds, 1), "commit": commit(), "parameters": model.parameter_count()}
        result |= {"nonzero": model.nonzero_count(), "multiply_adds": model.multiply_adds(sparse=True)}
        result |= {"images": self.images, "config": settings, "environment": _environment()}
        with self._in_one_sentence("write the result to"):
            save_weights(model, self.folder / "weights.safetensors")
            write_json(self.folder / "result.json", result)
        if self._events is not None:
            self._events.close()
        return result

    @contextlib.contextmanager
    def _in_one_sentence(self, what: str) -> Iterator[None]:
        """Turn a full disk or a directory that cannot be written into one sentence."""
        try:
            yield
        except OSError as error:
            found = checkpoint.find(self.checkpoints)
            kept = f"; the last good checkpoint is {found[0]}" if found else ""
            raise TrainingError(f"cannot {what} {self.folder}: {error.strerror or error}{kept}") from error


def flat_errors(errors: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`caunet.evaluate` returns, with one number per name: ``corner_error`` is the mean, in pixels."""
    flat = {**errors, "corner_error": errors["corner_error"]["mean"]}
    return flat | {f"corner_error_{name}": errors["corner_error"][name] for name in ("median", "p90")}


def _open_events(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))


def _environment() -> dict[str, Any]:
    return {
        "caunet": caunet.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }
