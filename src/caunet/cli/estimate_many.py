"""``caunet estimate-many``: the transformations of many pairs of images, into one file."""

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from caunet.cli.estimate import FAILED, SearchOptions

__all__ = ["EstimateManyCommand"]


@dataclass(frozen=True)
class EstimateManyCommand(SearchOptions):
    """Estimate the transformations of many pairs of images.

    Each pair ends as one line of RESULTS, with its matrix (points of a to points of b, in pixels), confidence and
    reason, or with its error; a bad pair does not end the others. What is done is written at once. Started again with
    the same RESULTS, only what is missing there is done: after Ctrl-C, a power failure or a full disk run the same
    command again; delete RESULTS to begin anew. The exit code is 0; 3 if a pair ended with an error; 2 if PAIRS or
    RESULTS cannot be used.

    From two folders: caunet estimate-many before/ after/ --out results.csv --model euclidean

    From a list, on all cores: caunet estimate-many pairs.csv --out results.jsonl --engine processes

    On a Ray cluster that sees the same files: caunet estimate-many pairs.csv --out results.parquet --engine ray
    --address ray://head:10001
    """

    pairs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="PAIRS")]
    """A file of pairs, or two folders. The file: CSV with the columns a and b (or just two columns), or JSON lines
    such as {"a": "left/1.png", "b": "right/1.png"}; its paths are relative to where it is. Folders: images of the same
    name, whatever their ending; those without a partner are named and left out."""
    out: Annotated[Path, tyro.conf.arg(metavar="RESULTS")]
    """The file of results, by its ending. .jsonl: all of each estimate, as JSON; .csv and .parquet (extra parquet): a
    table, the matrix as h11 to h33. A Parquet file is written when the command ends; until then what is done is in
    RESULTS.journal."""
    engine: Literal["serial", "processes", "ray"] = "serial"
    """serial: one pair after the other; processes: one for each core of this machine; ray: on a cluster (extra ray)."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Pairs at once; default: one per core. Each worker has one thread and needs about 0.3 GB, more for large
    images."""
    address: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Of a Ray cluster to join, such as ray://head:10001, or auto on one of its nodes; without it --engine ray starts
    Ray on this machine. Every node must have caunet, and see the images under the same paths."""

    def run(self) -> int:
        """Estimate what is missing in the results."""
        from caunet.estimation.many import iterate_estimates
        from caunet.estimation.pair_files import Results, read_pairs

        self.check_search()
        results = Results(self.out, self.model)
        pairs, left_out = read_pairs(self.pairs)
        if left_out:
            shown = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
            alone = "1 image has" if len(left_out) == 1 else f"{len(left_out)} images have"
            print(f"caunet: {alone} no partner: {shown}", file=sys.stderr)
        todo = [pair for pair in pairs if pair not in results.done]
        failed = results.failed
        outcomes = iterate_estimates(
            todo,
            self.model,
            engine=self.engine,
            workers=self.workers,
            address=self.address,
            ordered=False,
            progress=True,
            **self.estimator_options(),
        )
        with results, contextlib.closing(outcomes):  # the workers end before the results do
            for outcome in outcomes:
                results.add(todo[outcome.index], outcome)
                failed += not outcome.ok
        print(f"{len(pairs)} pairs, {len(todo)} of them now, {failed} with an error: {self.out}")
        return FAILED if failed else 0
