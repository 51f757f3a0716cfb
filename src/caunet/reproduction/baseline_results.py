"""Predictors that have learned nothing, on the test pairs of the tables: the mean of z, and exhaustive search.

``python -m caunet.reproduction.baseline_results [--data cifar10] [--pairs 10000]`` measures them, and writes one file
for each task and protocol into the folder baselines beside this module. They depend on no seed: every network is tested
on the same pairs. Affine and projective have no exhaustive search: a grid over four or six parameters has millions of
points.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from caunet.files import write_json
from caunet.reproduction.recipes import TASKS
from caunet.reproduction.results import read

__all__ = ["BASELINES", "matching", "measure"]

BASELINES = ("mean", "search")
"""What the columns are called."""
_NAMES = {"mean": "mean", "search": "exhaustive search"}


def measure(data: str, task: str, protocol: str, pairs: int) -> dict[str, Any]:
    """Errors of both on the first ``pairs`` test pairs."""
    from caunet.baselines import baselines_for
    from caunet.data import PairSource, load_images
    from caunet.evaluation import evaluate

    source = PairSource(load_images(data, split="test"), task, protocol)
    known = baselines_for(source)
    found: dict[str, Any] = {"recipe": "baselines", "task": task, "protocol": protocol, "data": data}
    for name in BASELINES:
        if predictor := known.get(_NAMES[name]):
            errors = evaluate(predictor, source, limit=pairs)
            found[name] = {key: errors[key] for key in ("parameter_error", "transformation_error", "count")}
    return found


def matching(results: Sequence[Any], measure: str, known: Sequence[Any] | None = None) -> dict[str, float]:
    """The errors of the baselines on the pairs of ``results``, if they are all on the same and were measured."""
    wanted = {(r.get("data"), r.get("task"), r.get("protocol")) for r in results}
    for one in _committed() if known is None else known:
        if wanted == {(one["data"], one["task"], one["protocol"])}:
            return {name: one[name][measure] for name in BASELINES if name in one}
    return {}


@cache
def _committed() -> tuple[dict[str, Any], ...]:
    """What was measured and comes with the package."""
    folder = files("caunet.reproduction").joinpath("baselines")
    found = [read(Path(str(path))) for path in folder.iterdir()] if folder.is_dir() else []
    return tuple(value for value in found if value is not None)


def main(arguments: Sequence[str]) -> int:
    """Measure all tasks in both protocols."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="cifar10", help="photos or cifar10")
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path(str(files("caunet.reproduction"))) / "baselines")
    options = parser.parse_args(arguments)
    for task in TASKS:
        for protocol in ("text", "release"):
            path = options.out / f"{options.data}-{task}-{protocol}.json"
            if path.exists():
                continue
            write_json(path, measure(options.data, task, protocol, options.pairs))
            sys.stdout.write(f"{path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
