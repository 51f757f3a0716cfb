"""The training loop: pairs in, updates, a line of metrics now and then, checkpoints, a result.

A run is a function of its configuration: pairs, their order and the initial weights come from ``config.seed``, and
the step decides the learning rates, so a run that was killed and resumed ends with the bits of one that was not.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from caunet import tasks
from caunet.data import Pairs, PairSource, load_images
from caunet.data.photometric import Photometric
from caunet.errors import CheckpointError, DivergenceError, PeerError, TrainingError
from caunet.evaluation import evaluate
from caunet.models import RelationNetwork, create_model
from caunet.models.pruning import GradualPruning
from caunet.optim import HybridOptimizer
from caunet.progress import Track, track
from caunet.tasks import Task
from caunet.threads import cpu_threads
from caunet.training.checkpoint import Checkpoint
from caunet.training.config import TrainConfig
from caunet.training.distributed import World, world
from caunet.training.records import Run, flat_errors
from caunet.training.signals import StopRequest, stop_on_signals
from caunet.training.threads import choose_threads
from caunet.training.update import Loss, Update

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
    """What :func:`train` returns: ``result`` is the content of result.json, or ``None`` if the run was stopped."""

    run_dir: Path
    step: int
    result: dict[str, Any] | None
    leads: bool = True
    """Whether this process writes the files of the run (under ``torchrun`` one of them does)."""
    signal: int = 0
    """The signal that stopped the run; 0 for none."""

    @property
    def finished(self) -> bool:
        """Whether all updates were made and the result written."""
        return self.result is not None

    def __repr__(self) -> str:
        if self.result is None:
            return f"TrainResult({self.run_dir}: stopped after {self.step:,} updates)"
        error = self.result.get("parameter_error")
        said = "not finite" if error is None else f"{error:.4g}"
        return f"TrainResult({self.run_dir}: {self.step:,} updates, parameter error {said})"


def load_sources(config: TrainConfig) -> tuple[PairSource, PairSource]:
    """The training and test pairs of a run; test pairs are always the fixed ones of the test images."""
    shared: dict[str, Any] = {
        "per_image": config.per_image,
        "patch": config.patch,
        "dtype": getattr(torch, config.dtype),
        "photometric": Photometric.from_json(config.photometric) if config.photometric else None,
    }
    kind: dict[str, Any] = {
        "dimensions": tasks.get(config.task).dimensions,
        "skip_bad": config.skip_bad,
    }
    train_images = load_images(config.data, split=config.split, **kind)
    test_images = load_images(config.data, split=config.test_split, **kind)
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


def make_loss(task: Task, config: TrainConfig) -> Literal["mse"] | Loss:
    """The loss of a run: of z as it is, of z in units of half each parameter's range, or of the patch's corners.

    >>> from caunet import tasks
    >>> loss = make_loss(tasks.get("projective"), TrainConfig(task="projective", loss="range"))
    >>> loss(torch.tensor([[0.5, 0, 0, 0, 0, 0.01]]), torch.zeros(1, 6)).item()  # 2/6: each off by half its range
    0.333...
    >>> loss = make_loss(tasks.get("translation"), TrainConfig(loss="corners"))
    >>> loss(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2)).item()  # every corner is off by 5 pixels
    25.0
    """
    if config.loss == "mse":
        return "mse"
    if config.loss == "range":
        half = [(high - low) / 2 for low, high in zip(task.low, task.high, strict=True)]

        def in_ranges(estimate: Tensor, z: Tensor) -> Tensor:
            # Made here, of numbers: the compiled update takes no tensors but the network's and the batch.
            factor = torch.stack([estimate.new_full((), 1 / h) for h in half])
            return ((estimate - z) * factor).square().mean()

        return in_ranges

    def at_corners(estimate: Tensor, z: Tensor) -> Tensor:
        there, wanted = (task.corners(one, config.patch) for one in (estimate, z))
        return (there - wanted).square().sum(-1).mean()

    return at_corners


def train(
    config: TrainConfig,
    run_dir: str | Path,
    *,
    resume: Resume = False,
    progress: bool = True,
    tensorboard: bool = False,
    sources: Sources | None = None,
    threads: int | None = None,
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
        threads: CPU threads during the run; torch's own number is put back at its end. By default one for a small
            network on the CPU (fewer than five million weights times pairs in a batch), for which more are slower,
            and else what torch has, as also where ``OMP_NUM_THREADS`` is set.

    Raises:
        TrainingError: the loss is not finite or has diverged, or the disk cannot be written; the message names
            the step and the last good checkpoint.
        RunBusyError: another process trains in ``run_dir``.
        CheckpointError: the checkpoint to resume is damaged, belongs to another run, or was trained on other images.

    SIGINT (Ctrl-C), SIGTERM and SIGHUP save a checkpoint and return; :attr:`TrainResult.signal` says which came.
    Under ``torchrun`` the same call trains on all processes together.
    """
    with world(config.device) as here:
        with here.all_or_none():
            # All that can be wrong with the settings shows here, before anything is written.
            training, testing = (sources or load_sources)(config.replace(device=str(here.device)))
            images = {"training": training.fingerprint, "test": testing.fingerprint}
            run = Run(Path(run_dir), here, images, tensorboard=tensorboard)
            loop = _Loop(config, run, here, (training, testing), progress)
            count = choose_threads(threads, loop.model, config.batch, str(here.device))
        _check_same_images(here, images)
        again = "auto" if here.restarts and not resume else resume
        with cpu_threads(count), run.open(config, again) as state:
            try:
                return loop.go(state)
            except TrainingError as error:
                # Loss and gradients are sums over all processes, so all of them stop here: one says why.
                if here.leads:
                    raise
                raise PeerError(str(error)) from error


def _check_same_images(here: World, images: dict[str, str]) -> None:
    """Raise if another process has other images, as machines with different copies of a data set would."""
    leading = here.on_rank0(lambda: images)
    with here.all_or_none():
        if images != leading:
            raise TrainingError("its images are not those of process 0")


class _Loop:
    """One run under way."""

    def __init__(
        self,
        config: TrainConfig,
        run: Run,
        here: World,
        sources: tuple[PairSource, PairSource],
        progress: bool,
    ) -> None:
        self.config, self.run, self.here, self.progress = config, run, here, progress
        self.training, self.testing = sources
        if config.batch < here.size:
            raise ValueError(
                f"batch must be at least the number of processes ({here.size}), got {config.batch}"
            )
        if config.shards > 1 and config.shards % here.size:
            raise ValueError(
                f"shards must be a multiple of the number of processes ({here.size}), got {config.shards}"
            )
        self.model = _build(config).to(here.device, getattr(torch, config.dtype))
        self.optimizer = make_optimizer(self.model, config)
        compiled: dict[str, Literal["auto"] | bool] = {"auto": "auto", "always": True, "never": False}
        self.update = Update(
            self.model,
            self.optimizer,
            make_loss(self.training.task, config),
            compile=compiled[config.compile],
        )
        self.pruning = GradualPruning(self.model, config.prune, config.updates) if config.prune else None
        self.step, self.window, self.seconds, self.first_loss = 0, [0.0, 0.0], 0.0, math.nan
        self.last_saved: Path | None = None

    def go(self, state: tuple[Path, Checkpoint] | None) -> TrainResult:
        if state is not None:
            self._restore(*state)
            if self.pruning is not None:
                self.pruning.resume(self.step)
        # Compiling takes half a minute: not waited for, where no other process waits for this one.
        with (
            stop_on_signals(lambda: self.update.compiling and self.here.size == 1) as request,
            self._bar() as bar,
        ):
            self.update.on_compile = lambda: bar.say("compiling the update ...")
            started = time.perf_counter()
            try:
                for loss in self._updates():
                    self._count(loss)
                    if self.step % self.config.log_every == 0:
                        self._log(started, bar)
                    if self.step % self.config.test_every == 0 and self.step < self.config.updates:
                        self._test()  # at the last update all pairs are measured
                    stop = self._should_stop(request)
                    every = self.config.checkpoint_every
                    if stop or self.step == self.config.updates or (every and self.step % every == 0):
                        self._save(started)
                    if stop and self.step < self.config.updates:
                        return self._stopped(stop)
            except (Exception, KeyboardInterrupt):
                # A signal to all of a terminal's processes also ends the C++ compiler: nobody wants its complaints.
                if not (request.signal and self.update.compiling):
                    raise
                if self.here.size == 1:
                    self._save(started)
                return self._stopped(request.signal)
            self.seconds += time.perf_counter() - started
        return TrainResult(self.run.folder, self.step, self._finish(), self.here.leads)

    def _stopped(self, signum: int) -> TrainResult:
        return TrainResult(self.run.folder, self.step, None, self.here.leads, signum)

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
            if self.pruning is not None:
                self.pruning.after(self.step)
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
            bad = next((n for n, p in self.model.named_parameters() if not p.isfinite().all()), None)
            where = f"parameter {bad} is not finite" if bad else "all parameters are finite"
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
        self.here.on_rank0(lambda: self._record(self._evaluate(self.config.test_pairs)))

    def _record(self, errors: dict[str, Any]) -> None:
        if self.step != self.run.last_tested:  # as it is when a finished run is resumed
            flat = flat_errors(errors)
            self.run.record(step=self.step, test={name: flat[name] for name in _TESTED})

    def _evaluate(self, limit: int | None, progress: bool = False) -> dict[str, Any]:
        return evaluate(self.model, self.testing, limit=limit, progress=progress)

    def _should_stop(self, request: StopRequest) -> int:
        """The signal that asks this run to stop; 0 for none."""
        if self.here.size == 1:
            return request.signal
        # All processes must leave at the same step, and asking costs a message: ask where metrics are written.
        return self.here.highest(request.signal) if self.step % self.config.log_every == 0 else 0

    def _save(self, started: float) -> None:
        extra = {
            "window": self.window,
            "first_loss": None if math.isnan(self.first_loss) else self.first_loss,
            "seconds": self.seconds + time.perf_counter() - started,
            "images": self.run.images,
        }
        state = Checkpoint(
            self.step, self.model.state_dict(), self.optimizer.state_dict(), self.config.to_json(), extra
        )
        self.last_saved = self.here.on_rank0(lambda: self.run.save(state))

    def _restore(self, path: Path, state: Checkpoint) -> None:
        try:
            self.model.load_state_dict(state.model)
            self.optimizer.load_state_dict(state.optimizer)
            total, count = state.extra["window"]
            first = state.extra["first_loss"]
            self.window, self.seconds = [float(total), float(count)], float(state.extra["seconds"])
            self.first_loss = math.nan if first is None else float(first)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CheckpointError(f"{path} does not fit this network ({reason})") from error
        self.step, self.last_saved = state.step, path

    def _finish(self) -> dict[str, Any]:
        def finish() -> dict[str, Any]:
            errors = self._evaluate(None, self.progress)
            self._record(errors)
            return self.run.finish(self.config, self.model, errors, self.seconds)

        return self.here.on_rank0(finish)

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
