"""``caunet bench``: registration measured beside other methods, and the pairs it is measured on."""

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from caunet.benchmark.case_run import Kind
    from caunet.benchmark.journal import Rows
    from caunet.benchmark.methods import Method
    from caunet.tables import Table

__all__ = ["COMMANDS", "Registration", "Sheet"]


@dataclass(frozen=True)
class Registration:
    """Register pairs whose homography is known, by caunet and by other methods, and print how far off each was.

    All take turns on the same pairs, with one thread. Measurements are kept in --out: an interrupted run continues.

    Example: caunet bench registration --pairs 10 --methods caunet ecc sift --conditions clean occlusion
    Example: caunet bench registration --set stress --methods caunet sift
    Example: caunet bench registration --set oxford --data FOLDER
    """

    set: Literal["synthetic", "stress", "oxford"] = "synthetic"
    """Which pairs: synthetic homographies; rows that are hard in one way each; the Oxford affine set, from --data."""
    data: Path | None = None
    """Folder of the Oxford set, with graf/img1.png, graf/H1to2p.xml and so on."""
    rows: tuple[str, ...] = ()
    """Some rows of the stress set ("scale 1/4") or of the Oxford set (graf); default: all."""
    pairs: int = 100
    """Pairs of each condition and motion. Slow methods (kornia) get a fifth of them, at least 20; the table says so."""
    methods: tuple[str, ...] = ()
    """Which methods: caunet ecc ecc-pyramid sift orb phase kornia pystackreg simpleitk root-sift xfeat disk aliked;
    default: the first nine on synthetic pairs, else caunet sift orb root-sift xfeat."""
    conditions: tuple[str, ...] = ()
    """Of: clean photometric blur occlusion low-texture; default: all."""
    motions: tuple[float, ...] = ()
    """How far corners move at most, as shares of the side; default: 0.03 0.1 0.2."""
    out: Path | None = None
    """Where measurements are kept, one line per pair; default: runs/registration.jsonl, with the set in its name."""
    again: tuple[str, ...] = ()
    """Methods to measure again: their measurements in --out are dropped first."""
    figure: Path | None = None
    """Draw the curves of errors into this file (png, svg or pdf)."""
    json: bool = False
    """Print JSON instead of tables."""
    seed: int = 0
    """Other seeds make other pairs."""
    side: int = 256
    """Side of the images of synthetic pairs, in pixels."""

    def run(self) -> int:
        """Measure what is not measured yet, print all of it."""
        from caunet.benchmark.journal import forget
        from caunet.benchmark.methods import find

        self._check()
        chosen = find(self.methods or None, self.set)
        if self.again:
            forget(self._out, [method.name for method in find(self.again)])
        if self.set == "synthetic":
            self._synthetic(chosen)
        else:
            self._cases(chosen, self.set)
        return 0

    @property
    def _out(self) -> Path:
        return (
            self.out
            or Path("runs") / f"registration{'' if self.set == 'synthetic' else '-' + self.set}.jsonl"
        )

    def _check(self) -> None:
        """Refuse what another set has."""
        wrong: dict[str, Any]
        if self.set == "synthetic":
            wrong = {"data": self.data, "rows": self.rows}
        else:
            wrong = {"conditions": self.conditions, "motions": self.motions}
        for name, value in wrong.items():
            if value:
                raise ValueError(f"{name} must not be given with the set {self.set}, got {value}")
        if self.data is not None and self.set != "oxford":
            raise ValueError(f"data must not be given with the set {self.set}, got {self.data}")
        if self.data is None and self.set == "oxford":
            raise ValueError("data must be the folder of the Oxford set (--data FOLDER), got None")

    def _synthetic(self, chosen: "list[Method]") -> None:
        from caunet.benchmark.figure import draw
        from caunet.benchmark.pairs import CONDITIONS, MOTIONS
        from caunet.benchmark.run import Plan, run
        from caunet.benchmark.table import summarize, verdict

        plan = Plan(
            pairs=self.pairs,
            conditions=self.conditions or CONDITIONS,  # type: ignore[arg-type]
            motions=self.motions or MOTIONS,
            seed=self.seed,
            side=self.side,
        )
        wanted, names = {*plan.every()}, {method.name for method in chosen}
        rows = _of(names, {k: r for k, r in run(plan, chosen, self._out).items() if k in wanted})
        summary = summarize(rows)
        if self.figure is not None:
            draw(summary, self.figure)
        if self.json:
            print(json.dumps(summary, indent=2))
        else:
            _show(summary, verdict(summary))

    def _cases(self, chosen: "list[Method]", kind: "Kind") -> None:
        from caunet.benchmark.case_run import CaseSet, run_cases
        from caunet.benchmark.case_table import behind, by_row, overview, summarize_cases
        from caunet.benchmark.figure import draw_cases

        cases = CaseSet(kind, self.data, self.rows, seed=self.seed)
        rows = _of({method.name for method in chosen}, run_cases(cases, chosen, self._out))
        summary = summarize_cases(rows, kind)
        if self.figure is not None:
            draw_cases({kind: rows}, self.figure)
        if self.json:
            print(json.dumps(summary, indent=2))
            return
        _print(by_row(summary, kind))
        _print(overview(summary, kind))
        print(
            "Found: corners off by less than 1 % of the diagonal; beside it the median corner error in pixels."
        )
        if lost := behind(summary, kind):
            print("caunet is behind at:", *lost, sep="\n  ")


def _of(names: Container[str], rows: "Rows") -> "Rows":
    """The rows with the results of these methods alone."""
    return {
        key: row | {"methods": {n: r for n, r in row["methods"].items() if n in names}}
        for key, row in rows.items()
    }


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


def _print(table: "Table") -> None:
    from rich.console import Console

    # As wide as it needs to be: a table cut to a narrow terminal (or pipe) loses its last columns.
    Console(width=max(200, Console().width)).print(table.rich())


def _show(summary: list[dict[str, Any]], lost: list[str]) -> None:
    from caunet.benchmark.table import full

    _print(full(summary))
    print(
        "Corner errors in pixels; ms: median processor time of one thread; no answer counts as infinitely far."
    )
    if lost:
        print("caunet is more than 5 % behind the best at:", *lost, sep="\n  ")


COMMANDS: Mapping[str, type] = {"registration": Registration, "pairs": Sheet}
