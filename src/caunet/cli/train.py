"""``caunet train``: one network, one task."""

import dataclasses
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from caunet.errors import MissingExtraError
from caunet.training.config import BEST, PROFILES, TrainConfig, profile_settings

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
    paper's 200,000 updates, `best` the settings and the learning rule that did best. Ctrl-C saves; the same command
    with --resume goes on, to the same bits.

    Example: caunet train --profile quick --model can --task rotation --out runs/rotation
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
    """CPU threads to use; default: what torch finds."""
    config: Settings = field(default_factory=Settings)

    @classmethod
    def for_profile(cls, profile: str | None, model: str | None = None) -> "Train":
        """Arguments whose defaults are those of ``profile`` (unknown names are refused later, with a message)."""
        known = profile if profile in (*PROFILES, "best") else "paper"
        network = model if model and model.partition("-")[0] in BEST else "can"
        settings = Settings(**profile_settings(known, network))
        return cls(profile=known, config=settings)  # type: ignore[arg-type]

    def run(self) -> int:
        """Train; 0 when finished, 130 when interrupted."""
        import torch

        from caunet.training.loop import Resume, train
        from caunet.training.summary import summary, write_curves

        config = self.config.checked()
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        out = self._folder()
        resume: Resume = "previous" if self.resume_previous else self.resume
        result = train(config, out, resume=resume, tensorboard=self.tensorboard)
        if not result.leads:
            return 0
        if result.result is None:
            print(
                f"Interrupted after {result.step} updates; saved. To go on:\n  {self._again(out)}",
                file=sys.stderr,
            )
            return 130
        try:
            curve: Path | str = write_curves(out)
        except MissingExtraError as error:  # the run is whole without its figure
            curve = f"not drawn: {error}"
        print(summary(result.result, out, curve))
        return 0

    def _folder(self) -> Path:
        c = self.config
        return self.out or Path("runs") / f"{c.model}-{c.task}-{c.protocol}-seed{c.seed}"

    def _again(self, out: Path) -> str:
        # The words the person typed, with --resume: nothing of theirs is guessed again.
        typed = [word for word in sys.argv[1:] if word not in ("--resume", "--resume-previous")]
        place = [] if self.out else ["--out", str(out)]
        return shlex.join(["caunet", *typed, *place, "--resume"])
