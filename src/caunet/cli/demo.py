"""``caunet demo``: what caunet does, shown in five minutes."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Demo"]


@dataclass(frozen=True)
class Demo:
    """See what caunet does, in about five minutes on two cores; nothing is downloaded.

    First two images are aligned. Then three networks learn, from embedded photographs, by how much one patch was moved
    against another: concatenation, bilinear and contrast association units, each at its best settings. It ends with a
    table, beside what needs no learning, and with a report. Run again, it goes on where it was stopped.

    Example: caunet demo --out runs/demo
    """

    out: Path = Path("runs/demo")
    """Where the overlay, the runs and the report are written."""
    updates: int = 6_000
    """Updates of each network."""
    workers: int | None = None
    """Networks trained at once; default: one per core."""
    data: str = "photos"
    """Images to learn from: photos (embedded), cifar10, or a directory."""

    def run(self) -> int:
        """Show it; 0 when everything is finished, 130 when interrupted."""
        from rich.console import Console

        from caunet.reproduction.grid import run_grid
        from caunet.reproduction.live import watch
        from caunet.reproduction.recipes import demo
        from caunet.reproduction.report import write_report
        from caunet.reproduction.results import collect

        console = Console()
        self._align(console)
        cells = demo(self.updates, self.data)
        console.print(
            f"\n[bold]2  Three networks learn by how many pixels a patch was moved[/]\n"
            f"   from {self.data}, {self.updates:,} updates each",
            highlight=False,
        )
        with watch(Console(stderr=True)) as listener:
            state = run_grid(cells, self.out, workers=self.workers, listener=listener)
        found = collect(cells, self.out)
        if found:
            self._table(console, found)
            console.print("\n[bold]3  The report[/]", highlight=False)
            print(write_report(cells, found, self.out))
        for cell in cells:
            outcome = state.outcomes.get(cell.name)
            if outcome is not None and outcome.state == "failed":
                print(f"failed: {cell.name}: {outcome.message}", file=sys.stderr)
        return 130 if state.interrupted else 0 if state.complete else 1

    def _align(self, console: Any) -> None:
        import torch

        from caunet import estimate
        from caunet.benchmark.pairs import draw_pair
        from caunet.estimation.overlay import overlay, save_image
        from caunet.metrics import corner_error

        console.print(
            "[bold]1  Two images aligned[/]: a photograph, and a view of it from elsewhere", highlight=False
        )
        pair = draw_pair("test", "photometric", 0.12, index=0)
        started = time.perf_counter()
        found = estimate(pair.a, pair.b, model="projective")
        seconds = time.perf_counter() - started
        assert pair.H is not None
        matrix = torch.as_tensor(found.matrix)
        error = float(corner_error(matrix, pair.H, tuple(pair.a.shape), centered=False))
        picture = self.out / "aligned.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        save_image(overlay(pair.a, pair.b, found), picture)
        console.print(
            f"   corners off by {error:.2f} of {pair.a.shape[-1]} pixels (the truth is known here)\n"
            f"   confidence {found.confidence:.2f}, {seconds:.1f} s\n   {picture}",
            highlight=False,
        )

    def _table(self, console: Any, found: list[dict[str, Any]]) -> None:
        from caunet.reproduction.baseline_results import measure
        from caunet.reproduction.tables import caption, show
        from caunet.tables import Table, bold

        first = found[0]
        known = measure(self.data, first["task"], first["protocol"], pairs=10_000)
        lowest = min(result["parameter_error"] for result in found)
        rows: list[list[Any]] = [
            [
                _NAMES[result["model"]],
                bold(show(result["parameter_error"]), result["parameter_error"] == lowest),
                f"{result['corner_error']:.2f}",
                f"{result['parameters']:,}",
            ]
            for result in found
        ]
        for name, title in (("mean", "always the mean"), ("search", "exhaustive search")):
            rows.append([title, show(known[name]["parameter_error"]), "", "none"])
        table = Table(
            ["", "error (px²)", "corners (px)", "weights"],
            "lrrr",
            rows,
            title="Integer translation, test photographs",
            caption=f"{caption(found)}; profile best",
            sections=[len(found)],
        )
        console.print(table.rich())
        console.print(
            "Mean squared error of the shift, and how far the corners of a patch are off.", highlight=False
        )


_NAMES = {"ctn": "CTN, concatenation", "bln": "BLN, bilinear", "can": "CAN, contrast association"}
