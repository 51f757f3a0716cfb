"""``caunet estimate-many``: the transformations of many pairs of images, into one file."""

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from caunet.cli.estimate import FAILED, SearchOptions

__all__ = ["EstimateManyCommand"]


@dataclass(frozen=True)
class EstimateManyCommand(SearchOptions):
    """Estimate the transformations of many pairs of images.

    Each pair ends as one line of RESULTS, with its matrix, confidence and reason, or with its error; a bad pair does
    not end the others. Lines are written whole, as pairs are done. Started again with the same RESULTS, only what is
    missing there is done. The exit code is 0; 3 if a pair ended with an error; 2 if PAIRS or RESULTS cannot be used.

    From a list: caunet estimate-many pairs.csv --out results.jsonl --engine processes

    From two folders: caunet estimate-many before/ after/ --out results.csv --model euclidean
    """

    pairs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="PAIRS")]
    """A file of pairs, or two folders. The file: CSV with the columns a and b (or just two columns), or JSON lines
    with "a" and "b"; its paths are relative to where it is. Folders: images of the same name, whatever their ending."""
    out: Annotated[Path, tyro.conf.arg(metavar="RESULTS")]
    """The file of results: JSON lines (.jsonl), all of each estimate, or a table (.csv)."""
    engine: str = "serial"
    """serial: one pair after the other; processes: as many at once as this machine has cores; ray: on a cluster."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Pairs at once; default: one per core."""
    address: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Of a Ray cluster to join, such as ray://head:10001, for --engine ray."""

    def run(self) -> int:
        """Estimate what is missing in the results."""
        from caunet.estimation.many import iterate_estimates
        from caunet.estimation.pair_files import Results, read_pairs

        self.check_search()
        results = Results(self.out, self.model)
        pairs, left_out = read_pairs(self.pairs)
        if left_out:
            shown = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
            print(f"caunet: {len(left_out)} images have no partner: {shown}", file=sys.stderr)
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
