"""``caunet bench``: registration measured beside other methods, and the pairs it is measured on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["COMMANDS", "Registration", "Sheet"]


@dataclass(frozen=True)
class Registration:
    """Register pairs whose homography is known, by caunet and by other methods, and print how far off each was.

    All take turns on the same pairs, with one thread. Measurements are kept in --out: an interrupted run continues.

    Example: caunet bench registration --pairs 10 --methods caunet ecc sift --conditions clean occlusion
    """

    pairs: int = 100
    """Pairs of each condition and motion. Slow methods (kornia) get a fifth of them, at least 20; the table says so."""
    methods: tuple[str, ...] = ()
    """Which methods: caunet ecc ecc-pyramid sift orb phase kornia pystackreg simpleitk; default: all."""
    conditions: tuple[str, ...] = ()
    """Of: clean photometric blur occlusion low-texture; default: all."""
    motions: tuple[float, ...] = ()
    """How far corners move at most, as shares of the side; default: 0.03 0.1 0.2."""
    out: Path = Path("runs/registration.jsonl")
    """Where measurements are kept, one line per pair."""
    again: tuple[str, ...] = ()
    """Methods to measure again: their measurements in --out are dropped first."""
    figure: Path | None = None
    """Draw the curves of errors into this file (png, svg or pdf)."""
    json: bool = False
    """Print JSON instead of tables."""
    seed: int = 0
    """Other seeds make other pairs."""
    side: int = 256
    """Side of the images, in pixels."""

    def run(self) -> int:
        """Measure what is not measured yet, print all of it."""
        from caunet.benchmark.figure import draw
        from caunet.benchmark.methods import find
        from caunet.benchmark.pairs import CONDITIONS, MOTIONS
        from caunet.benchmark.run import Plan, forget, run
        from caunet.benchmark.table import summarize, verdict

        plan = Plan(
            pairs=self.pairs,
            conditions=self.conditions or CONDITIONS,  # type: ignore[arg-type]
            motions=self.motions or MOTIONS,
            seed=self.seed,
            side=self.side,
        )
        chosen = find(self.methods or None)
        if self.again:
            forget(self.out, [method.name for method in find(self.again)])
        wanted, names = set(plan.every()), {method.name for method in chosen}
        rows = {
            key: row | {"methods": {n: r for n, r in row["methods"].items() if n in names}}
            for key, row in run(plan, chosen, self.out).items()
            if key in wanted
        }
        summary = summarize(rows)
        if self.figure is not None:
            draw(summary, self.figure)
        if self.json:
            print(json.dumps(summary, indent=2))
        else:
            _show(summary, verdict(summary))
        return 0


@dataclass(frozen=True)
class Sheet:
    """Draw pairs of the benchmark: a above b, and below them what is left of b, carried back by the truth, minus a.

    Example: caunet bench pairs --condition occlusion --out pairs.png
    """

    out: Path
    """The image to write (png)."""
    condition: str = "clean"
    """One of: clean photometric blur occlusion low-texture."""
    motion: float = 0.1
    """How far corners move at most, as a share of the side."""
    pairs: int = 9
    """How many."""
    seed: int = 0
    """Other seeds make other pairs."""

    def run(self) -> int:
        """Draw them."""
        import torch
        from PIL import Image

        from caunet import geometry
        from caunet.benchmark import draw_pair
        from caunet.files import atomic_write

        columns = []
        for index in range(self.pairs):
            pair = draw_pair("bench", self.condition, self.motion, index, seed=self.seed)  # type: ignore[arg-type]
            assert pair.H is not None
            back = geometry.warp(pair.b[None], geometry.invert(pair.H)[None])[0]
            columns.append(torch.cat([pair.a, pair.b, (back - pair.a) + 0.5]))
        sheet = (torch.cat(columns, 1).clamp(0, 1) * 255).round().to(torch.uint8)
        with atomic_write(self.out) as temporary:
            Image.fromarray(sheet.numpy()).save(temporary, format="png")
        print(self.out)
        return 0


def _show(summary: list[dict[str, Any]], lost: list[str]) -> None:
    from rich.console import Console

    from caunet.benchmark.table import full

    # As wide as it needs to be: a table cut to a narrow terminal (or pipe) loses its last columns.
    Console(width=max(130, Console().width)).print(full(summary).rich())
    print(
        "Corner errors in pixels; ms: median processor time of one thread; no answer counts as infinitely far."
    )
    if lost:
        print("caunet is more than 5 % behind the best at:", *lost, sep="\n  ")


COMMANDS: Mapping[str, type] = {"registration": Registration, "pairs": Sheet}
