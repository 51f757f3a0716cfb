"""The training loop: pairs in, updates, a line of metrics now and then, checkpoints, a result.

A run is a function of its configuration: pairs, their order and the initial weights come from ``config.seed``, and
the step decides the learning rates, so a run that was killed and resumed ends with the bits of one that was not.
"""

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, cast

import torch
from torch import Tensor

from caunet.data import Pairs, PairSource, load_images
from caunet.data.photometric import Photometric
from caunet.errors import DivergenceError, PeerError, TrainingError
from caunet.evaluation import evaluate
from caunet.models import RelationNetwork, create_model
from caunet.optim import HybridOptimizer
from caunet.progress import Track, track
from caunet.training.checkpoint import Checkpoint
from caunet.training.config import TrainConfig
from caunet.training.distributed import World, world
from caunet.training.records import Run, flat_errors
from caunet.training.update import Update

__all__ = ["Resume", "Sources", "TrainResult", "load_sources", "make_optimizer", "train"]

Resume = bool | Literal["auto", "previous"]
Sources = Callable[[TrainConfig], tuple[PairSource, PairSource]]

# A window whose mean loss exceeds this many times the first window's has diverged: the paper's runs never
# come within a factor of ten of their start once they are under way.
_DIVERGED = 100.0
# Often enough for weights whose size means nothing never to leave the range of float32.
_RESCALE_EVERY = 100
_TESTED = ("parameter_error", "transformation_error", "corner_error")


@dataclass(frozen=True)
class TrainResult:
    """What :func:`train` returns: ``result`` is the content of result.json, or ``None`` if the run was interrupted."""

    run_dir: Path
    step: int
    result: dict[str, Any] | None
    leads: bool = True
    """Whether this process speaks for the run (under ``torchrun`` one of them does)."""

    @property
    def finished(self) -> bool:
        """Whether all updates were made and the result written."""
        return self.result is not None


def load_sources(config: TrainConfig) -> tuple[PairSource, PairSource]:
    """The training and test pairs of a run; test pairs are always the fixed ones of the test images."""
    shared: dict[str, Any] = {
        "per_image": config.per_image,
        "patch": config.patch,
        "dtype": getattr(torch, config.dtype),
        "photometric": Photometric.from_json(config.photometric) if config.photometric else None,
    }
    train_images = load_images(config.data, split=config.split, skip_bad=config.skip_bad)
    test_images = load_images(config.data, split=config.test_split, skip_bad=config.skip_bad)
    training = PairSource(
        train_images,
        config.task,
        config.protocol,
        pairs=config.pairs,
        seed=config.seed,
        device=config.device,
        **shared,
    )
    # Test pairs do not depend on the run's seed: every network and every seed is measured on the same ones.
    testing = PairSource(
        test_images, config.task, config.protocol, pairs="fixed", seed=0, device=config.device, **shared
    )
    return training, testing


def make_optimizer(model: RelationNetwork, config: TrainConfig) -> HybridOptimizer:
    """The optimizer of a run: Adam for free weights and, for non-negative ones, the rule that is asked for."""
    rule = model.learning_rule if config.rule == "auto" else config.rule
    options = dict(config.rule_options)
    if rule == "adam":
        rule = "multiplicative"  # a model without non-negative weights: Adam has them all
    if rule == "multiplicative":
        options.setdefault("eps", config.epsilon)
    optimizer = HybridOptimizer.for_model(
        model,
        rule=rule,
        lr=config.rate_multiplicative,
        free_lr=config.rate,
        adam_reset=config.adam_reset,
        **options,
    )
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer


def train(
    config: TrainConfig,
    run_dir: str | Path,
    *,
    resume: Resume = False,
    progress: bool = True,
    tensorboard: bool = False,
    sources: Sources | None = None,
) -> TrainResult:
    """Train one network as ``config`` says and leave everything about it in ``run_dir``.

    Args:
        config: the settings.
        run_dir: config.json, metrics.jsonl, checkpoints/, weights.safetensors and result.json are written here.
        resume: ``True`` continues the newest checkpoint, ``"previous"`` the one before it, ``"auto"`` continues
            when there is one and starts otherwise; ``False`` starts, and refuses a directory that has a run in it.
        progress: show a bar when stderr is a terminal.
        tensorboard: also write TensorBoard events to ``run_dir`` (needs the extra ``tensorboard``).
        sources: makes the pairs (:func:`load_sources` by default); a grid passes one that remembers them.

    Raises:
        TrainingError: the loss is not finite or has diverged, or the disk cannot be written; the message names
            the step and the last good checkpoint.
        CheckpointError: the checkpoint to resume is damaged or belongs to another run.

    Under ``torchrun`` the same call trains on all processes together.
    """
    with world(config.device) as here:
        with here.together():
            # All that can be wrong with the settings shows here, before anything is written.
            run = Run(Path(run_dir), here, tensorboard=tensorboard)
            loop = _Loop(config, run, here, sources or load_sources, progress)
        state = run.open(config, "auto" if here.restarts and not resume else resume)
        try:
            return loop.go(state)
        except TrainingError as error:
            # Loss and gradients are sums over all processes, so all of them stop here: one says why.
            if here.leads:
                raise
            raise PeerError(str(error)) from error


class _Loop:
    """One run under way."""

    def __init__(self, config: TrainConfig, run: Run, here: World, sources: Sources, progress: bool) -> None:
        self.config, self.run, self.here, self.progress = config, run, here, progress
        if config.batch < here.size:
            raise ValueError(
                f"batch takes at least one pair a process, got {config.batch} for {here.size} processes"
            )
        if config.shards > 1 and config.shards % here.size:
            raise ValueError(
                f"shards takes a multiple of the number of processes ({here.size}), got {config.shards}"
            )
        self.model = _build(config).to(here.device, getattr(torch, config.dtype))
        self.optimizer = make_optimizer(self.model, config)
        self.training, self.testing = sources(config.replace(device=str(here.device)))
        compiled: dict[str, Literal["auto"] | bool] = {"auto": "auto", "always": True, "never": False}
        self.update = Update(self.model, self.optimizer, compile=compiled[config.compile])
        self.step, self.window, self.seconds, self.first_loss = 0, [0.0, 0.0], 0.0, math.nan
        self.last_saved: Path | None = None

    def go(self, state: tuple[Path, Checkpoint] | None) -> TrainResult:
        if state is not None:
            self._restore(*state)
        with _interruptible() as interrupted, self._bar() as bar:
            started = time.perf_counter()
            for loss in self._updates():
                self._count(loss)
                if self.step % self.config.log_every == 0:
                    self._log(started, bar)
                if self.step % self.config.test_every == 0:
                    self._test()
                wanted = self._should_stop(interrupted)
                every = self.config.checkpoint_every
                if wanted or self.step == self.config.updates or (every and self.step % every == 0):
                    self._save(started)
                if wanted and self.step < self.config.updates:
                    return TrainResult(self.run.folder, self.step, None, self.here.leads)
            self.seconds += time.perf_counter() - started
        return TrainResult(self.run.folder, self.step, self._finish(), self.here.leads)

    def _updates(self) -> Iterator[float]:
        """Make one update after the other and yield its loss."""
        config, here = self.config, self.here
        batches = self.training.stream(
            self.step, config.updates, config.batch, config.order, rank=here.rank, world=here.size
        )
        for pairs in batches:
            self._set_rates()
            try:
                if here.size == config.shards == 1:
                    loss = self.update(pairs.x, pairs.y, pairs.z)
                else:
                    loss = self._gradients(pairs)
                    self.update.apply()
            except FloatingPointError as error:
                # The optimizer names the parameter whose gradient is not finite.
                raise self._diverged(str(error)) from error
            self.step += 1
            if self.step % _RESCALE_EVERY == 0:
                self.model.rescale_()
            yield loss.item()

    def _gradients(self, pairs: Pairs) -> Tensor:
        """Set the gradients of the whole batch, of which ``pairs`` are this process's, and return its loss."""
        count = max(self.config.shards // self.here.size, 1)
        parameters = list(self.model.parameters())
        parts = []
        for x, y, z in zip(*(t.chunk(count) for t in pairs), strict=True):
            loss = self.update.gradients(x, y, z)
            gradients = [p.grad.reshape(-1) for p in parameters if p.grad is not None]
            # One message: these networks are small, latency is what costs.
            parts.append(torch.cat([loss.detach().reshape(1), *gradients]) * (len(x) / self.config.batch))
        loss, total = self.here.add_up(parts, in_order=self.config.shards > 1).tensor_split([1])
        for p in parameters:
            if p.grad is not None:
                own, total = total.tensor_split([p.numel()])
                p.grad.copy_(own.view_as(p))
        return loss[0]

    def _set_rates(self) -> None:
        factor = self.config.rate_factor(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor

    def _count(self, loss: float) -> None:
        if not math.isfinite(loss):
            culprit = next((n for n, p in self.model.named_parameters() if not p.isfinite().all()), None)
            where = f"parameter {culprit} is not finite" if culprit else "all parameters are finite"
            raise self._diverged(f"the loss is {loss} ({where})", loss)
        self.window[0] += loss
        self.window[1] += 1

    def _log(self, started: float, bar: Track) -> None:
        mean = self.window[0] / self.window[1]
        self.window = [0.0, 0.0]
        if math.isnan(self.first_loss):
            self.first_loss = mean
        if mean > _DIVERGED * self.first_loss:
            raise self._diverged(f"the loss has diverged, from {self.first_loss:.4g} to {mean:.4g}", mean)
        seconds = self.seconds + time.perf_counter() - started
        rates = [group["lr"] for group in self.optimizer.param_groups]
        self.run.record(step=self.step, loss=mean, rates=rates, seconds=round(seconds, 3))
        bar.advance(self.config.log_every, loss=mean, **self._shown)

    @property
    def _shown(self) -> dict[str, float]:
        return {"test": self.run.last_test} if self.run.last_test is not None else {}

    def _test(self) -> None:
        def measure() -> None:
            errors = flat_errors(self._evaluate(self.config.test_pairs))
            self.run.record(step=self.step, test={name: errors[name] for name in _TESTED})

        self.here.led(measure)

    def _evaluate(self, limit: int | None) -> dict[str, Any]:
        return evaluate(self.model, self.testing, limit=limit, progress=False)

    def _should_stop(self, interrupted: threading.Event) -> bool:
        if self.here.size == 1:
            return interrupted.is_set()
        # All processes must leave at the same step, and asking costs a message: ask where metrics are written.
        return self.step % self.config.log_every == 0 and self.here.any(interrupted.is_set())

    def _save(self, started: float) -> None:
        extra = {
            "window": self.window,
            "first_loss": None if math.isnan(self.first_loss) else self.first_loss,
            "seconds": self.seconds + time.perf_counter() - started,
        }
        state = Checkpoint(
            self.step, self.model.state_dict(), self.optimizer.state_dict(), self.config.to_json(), extra
        )
        self.last_saved = self.here.led(lambda: self.run.save(state))

    def _restore(self, path: Path, state: Checkpoint) -> None:
        self.model.load_state_dict(state.model)
        self.optimizer.load_state_dict(state.optimizer)
        self.step, self.last_saved = state.step, path
        self.window = list(state.extra["window"])
        first = state.extra["first_loss"]
        self.first_loss = math.nan if first is None else first
        self.seconds = state.extra["seconds"]

    def _finish(self) -> dict[str, Any]:
        return self.here.led(
            lambda: self.run.finish(self.config, self.model, self._evaluate(None), self.seconds)
        )

    @contextlib.contextmanager
    def _bar(self) -> Iterator[Track]:
        if not (self.progress and self.here.leads):
            yield Track()
            return
        with track(self.config.updates, f"{self.config.model} · {self.config.task}", "updates") as bar:
            bar.advance(self.step)
            yield bar

    def _diverged(self, reason: str, loss: float | None = None) -> DivergenceError:
        kept = (
            f"the last good checkpoint is {self.last_saved}"
            if self.last_saved
            else "there is no checkpoint yet"
        )
        update = self.step + 1
        return DivergenceError(f"training stopped at update {update}: {reason}; {kept}", update, loss)


def _build(config: TrainConfig) -> RelationNetwork:
    generator = torch.Generator().manual_seed(config.seed)
    return create_model(config.model, config.task, config.patch, generator=generator, **config.model_options)


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a flag that the loop reads between updates; the second one ends at once.

    Under ``torchrun`` one Ctrl-C arrives twice, from the terminal and from the launcher (which kills those that
    are not done after half a minute), so there the second is not a second wish.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(signum: int, frame: FrameType | None) -> None:
        if asked.is_set() and "TORCHELASTIC_RUN_ID" not in os.environ:
            raise KeyboardInterrupt
        asked.set()

    previous = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, cast(Any, previous))
