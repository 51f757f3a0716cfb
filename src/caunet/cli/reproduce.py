"""``caunet reproduce``: the paper's tables, trained here."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from caunet.reproduction.grid import GridState
    from caunet.reproduction.recipes import Cell

__all__ = ["Reproduce"]

RecipeName = Literal[
    "released",
    "written",
    "claims",
    "control",
    "best",
    "sparse",
    "range",
    "corners",
    "ablation",
    "initialization",
    "space",
]


@dataclass(frozen=True)
class Reproduce:
    """Train the paper's networks on its tasks and print our errors beside the paper's.

    A grid of runs: each is trained once, continues where it was stopped, and is not run again when finished.
    Exit code 0 only if every cell is finished.

    Example: caunet reproduce --profile quick --recipe released --tasks translation --report
    """

    profile: Literal["quick", "paper", "best"] = "quick"
    """quick: the schedule compressed into about a minute per network; paper: the paper's 200,000 updates; best: every
    network at its best, in two sizes (the recipe of the same name)."""
    recipe: tuple[RecipeName, ...] | None = None
    """As the paper's text has it (written), as its authors' scripts did (released), its sentences tested
    (claims), CAN on rotation at full length (control), one difference between written and released at a time
    (ablation), CTN as released from other first weights (initialization); with profile best: at their best (best),
    pruned to the size of Table I's CAN (sparse), projective with a loss in units of each parameter's range (range) or
    of misplaced corners (corners), tasks of volumes (space). Several may be given; default: written, or best."""
    tasks: tuple[str, ...] | None = None
    """Which tasks; default: translation, rotation, scaling, affine, projective, for the recipe space those of
    volumes: translation3, rotation3, scaling3, affine3, rigid3."""
    models: tuple[str, ...] = ("ctn", "bln", "can")
    """Which networks (for claims: these and their variants)."""
    seeds: int = 1
    """Seeds 0 to N-1; the tables show mean and standard deviation."""
    protocol: Literal["text", "release"] | None = None
    """How pairs are made; default: what the recipe says."""
    data: str | None = None
    """photos, cifar10 or a directory; default: photos for quick, cifar10 for paper, shapes3 for volumes."""
    engine: Literal["processes", "serial", "ray"] = "processes"
    """Where runs are made: in processes of this machine, one after the other in this process, or on a Ray cluster
    (extra ray; --out must then be a folder that all nodes share)."""
    address: str | None = None
    """Of a Ray cluster to join; without it Ray starts on this machine."""
    workers: int | None = None
    """Runs at once; default: one per core."""
    updates: int | None = None
    """Updates of each run, instead of the profile's."""
    out: Path = Path("runs/reproduce")
    """Where the runs are kept."""
    results: Path | None = None
    """Also copy the finished cells' results, small JSON files, to this directory."""
    report: bool = False
    """Write report/index.html and its figures into --out."""

    def run(self) -> int:
        """Run the grid; 0 when all cells are finished, 1 when some are not, 130 when interrupted."""
        from rich.console import Console

        from caunet.reproduction.grid import run_grid
        from caunet.reproduction.live import watch

        cells = self._cells()
        console = Console(stderr=True)
        with watch(console) as listener:
            state = run_grid(
                cells,
                self.out,
                workers=self.workers,
                engine=self.engine,
                address=self.address,
                listener=listener,
            )
        self._conclude(cells, state)
        return 130 if state.interrupted else 0 if state.complete else 1

    def _cells(self) -> "list[Cell]":
        """The grid, with every name checked before anything is trained."""
        from caunet import tasks
        from caunet.data import load_images
        from caunet.reproduction.recipes import SPACE_TASKS, TASKS, cells

        of_volumes = self._recipes == ("space",)
        chosen = self.tasks or (SPACE_TASKS if of_volumes else TASKS)
        for task in chosen:
            tasks.get(task)
        unknown = [model for model in self.models if model not in ("ctn", "bln", "can")]
        if unknown:
            raise ValueError(
                f"models must be any of ctn, bln, can, got {unknown[0]!r}; others: `caunet train`"
            )
        data = self.data or ("shapes3" if of_volumes else "photos" if self.profile == "quick" else "cifar10")
        load_images(data, split="test", dimensions=3 if of_volumes else 2)
        found = cells(
            self._recipes,
            tasks=chosen,
            models=self.models,
            seeds=self.seeds,
            profile=self.profile,
            updates=self.updates,
            protocol=self.protocol,
            data=data,
        )
        if not found:
            raise ValueError(f"recipe {', '.join(self._recipes)} has no runs for {', '.join(chosen)}")
        return found

    @property
    def _recipes(self) -> tuple[str, ...]:
        return self.recipe or (("best",) if self.profile == "best" else ("written",))

    def _conclude(self, cells: "list[Cell]", state: "GridState") -> None:
        """Tables of what is finished, what failed, and how to continue."""
        from caunet.reproduction.claims import add_offsets
        from caunet.reproduction.results import collect

        add_offsets(cells, self.out)
        found = collect(cells, self.out, self.results)
        self._print_tables(found)
        if self.report and found:
            from caunet.reproduction.report import write_report

            print(f"Report: {write_report(cells, found, self.out)}")
        missing = [
            cell for cell in cells if cell.name not in state.outcomes or not state.outcomes[cell.name].done
        ]
        for cell in missing:
            outcome = state.outcomes.get(cell.name)
            if outcome is not None and outcome.state == "failed":
                print(f"failed: {cell.name}: {outcome.message}", file=sys.stderr)
        if missing:
            again = shlex.join(["caunet", *sys.argv[1:]])
            print(
                f"{len(missing)} of {len(cells)} cells are not finished. To continue:\n  {again}",
                file=sys.stderr,
            )

    def _print_tables(self, found: list[dict[str, Any]]) -> None:
        from rich.console import Console

        from caunet.reproduction.claims import judge
        from caunet.reproduction.tables import MEASURES, caption, layout, make_table

        console = Console()
        if any(result["recipe"] == "best" for result in found):
            from rich.markdown import Markdown

            from caunet.reproduction.best import best_markdown

            console.print(Markdown(best_markdown(found)))
        if any(result["recipe"] == "space" for result in found):
            from rich.markdown import Markdown

            from caunet.reproduction.in_space import space_markdown

            console.print(Markdown(space_markdown(found)))
        for recipe in self._recipes:
            chosen = [result for result in found if result["recipe"] == recipe]
            if not chosen or recipe not in ("written", "released", "control"):
                continue
            for measure in MEASURES:
                note = f"{recipe}: {caption(chosen)}"
                console.print(layout(make_table(chosen, measure), note, narrow=True).rich(compact=True))
        for finding in judge(found):
            figures = "; ".join(f"{task}: {text}" for task, text in finding.texts.items())
            console.print(f"[bold]{finding.verdict}[/]  {finding.sentence}\n    {figures}", highlight=False)
