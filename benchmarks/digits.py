"""Relation units in a small network of one's own: two questions about scikit-learn's handwritten digits.

    python -m benchmarks.digits [--updates 800] [--seeds 3]

*Same*: do two 8 x 8 images show the same digit? *Moved*: by how many pixels was an image shifted, up to 2 each way, on
a 12 x 12 canvas, behind noise? Three units answer, followed by the same layers: concatenation, bilinear, contrast
association. Each gets the best of its rates on a validation part, then is measured on digits that nothing was learned
from.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from caunet.extras import require
from caunet.nn import Bilinear, Concatenation, L2Norm, NoCompetition, RelativeContrast, Softmin
from caunet.optim import HybridOptimizer
from caunet.progress import track
from caunet.reproduction.tables import fill
from caunet.tables import Table, bold

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import save, threads

PARTS = {"train": (0, 1000), "validation": (1000, 1300), "test": (1300, 1797)}
RATES = (0.002, 0.005, 0.01)
BATCH = 100
PAGE = Path(__file__).parents[1] / "docs" / "own-model.md"
NOISE = 0.3  # of the moved images, whose gray levels are from 0 to 1: without it all units are right


class Pairwise(nn.Module):
    """Units of one kind, their competition, two layers: what one would write."""

    def __init__(self, kind: str, inputs: int, outputs: int) -> None:
        super().__init__()
        self.units: nn.Module
        self.competition: nn.Module
        self.kind = kind
        if kind == "contrast association":
            self.units, self.competition = RelativeContrast(inputs, inputs, 100, rank=4), Softmin(1 / 3, 4.0)
            width = 100
        elif kind == "bilinear":
            self.units, self.competition, width = Bilinear(inputs, inputs, 100, rank=4), L2Norm(), 100
        else:
            self.units, self.competition, width = Concatenation(inputs, inputs), NoCompetition(), 2 * inputs
        # Concatenation has no weights of its own: a wider first layer gives it as many.
        hidden = 100 if width == 100 else (500 if inputs == 64 else 480)
        self.decoder = nn.Sequential(
            nn.Linear(width, hidden), nn.PReLU(), nn.Linear(hidden, 50), nn.PReLU(), nn.Linear(50, outputs)
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.competition(self.units(x, y))
        if self.kind == "contrast association":
            h = 3 * (h - 1 / h.shape[-1])  # softmin's responses sum to 1
        z: Tensor = self.decoder(h)
        return z


def digits(part: str) -> tuple[Tensor, Tensor]:
    """Images (N, 8, 8), from 0 to 1, and what they show."""
    loaded = require("sklearn.datasets", "bench", "The digits").load_digits()
    first, last = PARTS[part]
    return torch.from_numpy(loaded.images[first:last]).float() / 16, torch.from_numpy(
        loaded.target[first:last]
    )


def same(part: str, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs of images, half of them of the same digit, and whether they are."""
    images, labels = digits(part)
    first = torch.randint(len(images), (count,), generator=generator)
    order = torch.rand(count, len(images), generator=generator)
    wanted = torch.rand(count, generator=generator) < 0.5
    fits = (labels[first][:, None] == labels) == wanted[:, None]
    fits[torch.arange(count), first] = False
    second = (order * fits).argmax(1)
    return images[first].flatten(1), images[second].flatten(1), wanted.float()[:, None]


def moved(part: str, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """An image in the middle of its canvas, the same image shifted, each with its own noise, and the shift."""
    images, _ = digits(part)
    chosen = images[torch.randint(len(images), (count,), generator=generator)]
    shift = torch.randint(-2, 3, (count, 2), generator=generator)
    canvas = nn.functional.pad(chosen, (2, 2, 2, 2))
    rows = (torch.arange(12)[None, :, None] - shift[:, :1, None]).clamp(0, 11)
    columns = (torch.arange(12)[None, None, :] - shift[:, 1:, None]).clamp(0, 11)
    carried = canvas[torch.arange(count)[:, None, None], rows, columns]
    x, y = (image + NOISE * torch.randn(image.shape, generator=generator) for image in (canvas, carried))
    return x.flatten(1), y.flatten(1), shift.float()


TASKS: dict[str, tuple[Callable[..., Any], int, int]] = {"same": (same, 64, 1), "moved": (moved, 144, 2)}


def loss(task: str, z: Tensor, truth: Tensor) -> Tensor:
    if task == "same":
        return nn.functional.binary_cross_entropy_with_logits(z, truth)
    return nn.functional.mse_loss(z, truth)


def error(task: str, z: Tensor, truth: Tensor) -> float:
    """Share of wrong answers: of the yes or no, or of the rounded shift."""
    if task == "same":
        return float(((z > 0) != (truth > 0.5)).float().mean())
    return float((z.round() != truth).any(1).float().mean())


def run(task: str, kind: str, rate: float, seed: int, updates: int, part: str) -> dict[str, float]:
    """Train one network; its error on ``part``."""
    make, inputs, outputs = TASKS[task]
    torch.manual_seed(seed)
    model = Pairwise(kind, inputs, outputs)
    generator = torch.Generator().manual_seed(seed)
    optimizer = HybridOptimizer.for_model(
        model, rule="multiplicative-adam", lr=10 * rate, free_lr=rate, mix=0.02
    )
    started = time.perf_counter()
    scale = [group["lr"] for group in optimizer.param_groups]
    x, y, z = make("train", 50 * BATCH, generator)
    for step in range(updates):
        if step % 50 == 0 and step:
            x, y, z = make("train", 50 * BATCH, generator)
        own = slice(step % 50 * BATCH, (step % 50 + 1) * BATCH)
        for group, lr in zip(optimizer.param_groups, scale, strict=True):
            group["lr"] = lr * (1 - step / updates)
        optimizer.zero_grad()
        loss(task, model(x[own], y[own]), z[own]).backward()
        optimizer.step()
    seconds = time.perf_counter() - started
    with torch.no_grad():
        x, y, z = make(part, 5000, torch.Generator().manual_seed(99))
        return {
            "error": error(task, model(x, y), z),
            "seconds": round(seconds, 1),
            "weights": sum(p.numel() for p in model.parameters()),
        }


def markdown(found: dict[str, Any], updates: int, seeds: int) -> str:
    """Both tasks, the fewest wrong answers in bold."""
    rows: list[list[Any]] = []
    questions = {"same": "the same digit?", "moved": "moved by how much?"}
    for kind in next(iter(found.values())):
        row: list[Any] = [kind]
        for task in questions:
            one = found[task][kind]
            lowest = min(other["error"] for other in found[task].values())
            row.append(
                bold(
                    f"{100 * one['error']:.2f} ± {100 * (one['deviation'] or 0):.2f} %",
                    one["error"] == lowest,
                )
            )
        rows.append([*row, ", ".join(f"{found[task][kind]['weights']:,}" for task in questions)])
    table = Table(["units", *questions.values(), "weights"], "lrrr", rows).markdown()
    return f"{updates:,} updates, {seeds} seeds, 5,000 test pairs.\n\n{table}\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    kinds = ("concatenation", "bilinear", "contrast association")
    found: dict[str, Any] = {}
    total = len(TASKS) * len(kinds) * (len(RATES) + options.seeds)
    with threads(1), track(total, "digits", "runs") as bar:
        for task in TASKS:
            for kind in kinds:
                looks = {}
                for rate in RATES:
                    looks[rate] = run(task, kind, rate, 0, options.updates, "validation")["error"]
                    bar.advance()
                best = min(looks, key=lambda rate: looks[rate])
                runs = []
                for seed in range(options.seeds):
                    runs.append(run(task, kind, best, seed, options.updates, "test"))
                    bar.advance()
                errors = [one["error"] for one in runs]
                found.setdefault(task, {})[kind] = {
                    "rate": best,
                    "validation": looks,
                    "error": statistics.fmean(errors),
                    "deviation": statistics.stdev(errors) if len(errors) > 1 else None,
                    "weights": runs[0]["weights"],
                    "runs": runs,
                }
    if PAGE.exists():
        fill(PAGE, markdown(found, options.updates, options.seeds), "digits")
    save("digits", {"updates": options.updates, "seeds": options.seeds, "tasks": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
