"""``caunet train``: one network, one task."""

import contextlib
import dataclasses
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from caunet.errors import MissingExtraError
from caunet.training.config import BEST, IN_SPACE, PROFILES, TrainConfig, profile_settings

__all__ = ["Settings", "Train"]


@dataclass(frozen=True)
class Settings(TrainConfig):
    """Settings of the run; the defaults are those of the profile."""

    def __post_init__(self) -> None:
        # Checked in run(), where a wrong value becomes one plain line instead of a parser's inner error.
        pass

    def checked(self) -> TrainConfig:
        """The same settings, checked."""
        return TrainConfig.from_json(dataclasses.asdict(self))


@dataclass(frozen=True)
class Train:
    """Train one network on one task, and measure it on all test pairs.

    Every setting can be given; a profile sets the rest: `quick` takes about a minute on two cores, `paper` is the
    paper's 200,000 updates, `best` the settings and the learning rule that did best. Ctrl-C, SIGTERM and SIGHUP save;
    the same command with --resume continues, to the same bits.

    Example: caunet train --profile quick --model can --task rotation --out runs/rotation

    Volumes: caunet train --profile best --model can --task translation3 (7 x 7 x 7 voxels of shapes3 unless others
    are given).
    """

    out: Path | None = None
    """Directory of the run; default runs/MODEL-TASK-PROTOCOL-seedN."""
    profile: Literal["quick", "paper", "best"] = "paper"
    """Which settings to start from."""
    resume: bool = False
    """Continue the newest checkpoint in --out."""
    resume_previous: bool = False
    """Continue the checkpoint before the newest one (when that is damaged)."""
    tensorboard: bool = False
    """Also write TensorBoard events (needs the extra `tensorboard`)."""
    threads: int | None = None
    """CPU threads to use; default: one for a small network, for which more are slower, else what torch finds."""
    config: Settings = field(default_factory=Settings)

    @classmethod
    def for_profile(cls, profile: str | None, model: str | None = None, task: str | None = None) -> "Train":
        """Arguments whose defaults are those of ``profile`` (unknown names are refused later, with a message)."""
        known = profile if profile in (*PROFILES, "best") else "paper"
        network = model if model and model.partition("-")[0] in BEST else "can"
        space = IN_SPACE if _is_in_space(task) else {}
        settings = Settings(**profile_settings(known, network, task), **space)
        return cls(profile=known, config=settings)  # type: ignore[arg-type]

    def run(self) -> int:
        """Train; 0 when finished, 128 + n when signal number n stopped the run (130 for Ctrl-C)."""
        from caunet.training.loop import Resume, train
        from caunet.training.summary import summary, write_curves

        config = self.config.checked()
        out = self._folder()
        resume: Resume = "previous" if self.resume_previous else self.resume
        result = train(config, out, resume=resume, tensorboard=self.tensorboard, threads=self.threads)
        if result.result is None:
            if result.leads:
                self._say_how_to_continue(result.step, out)
            return 128 + result.signal
        if result.leads:
            curve: Path | str
            try:
                curve = write_curves(out)
            except MissingExtraError as error:
                curve = f"not drawn: {error}"
            print(summary(result.result, out, curve))
        return 0

    def _say_how_to_continue(self, step: int, out: Path) -> None:
        with contextlib.suppress(OSError):  # after SIGHUP there may be no terminal any more
            print(
                f"Interrupted after {step} updates; saved. To continue:\n  {self._again(out)}",
                file=sys.stderr,
                flush=True,
            )

    def _folder(self) -> Path:
        c = self.config
        return self.out or Path("runs") / f"{c.model}-{c.task}-{c.protocol}-seed{c.seed}"

    def _again(self, out: Path) -> str:
        # The words that were typed, with --resume: nothing is guessed.
        typed = [word for word in sys.argv[1:] if word not in ("--resume", "--resume-previous")]
        place = [] if self.out else ["--out", str(out)]
        return shlex.join(["caunet", *typed, *place, "--resume"])


def _is_in_space(task: str | None) -> bool:
    if task is None:
        return False
    from caunet import tasks  # which imports torch: only where a task is named

    return task in tasks.names() and tasks.get(task).dimensions == 3
