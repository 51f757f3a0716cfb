"""Two folders of images, matched by name, estimated inside of a Ray dataset; the results go to Parquet files.

    python examples/estimate_on_ray.py before/ after/ --out results/ [--model euclidean] [--concurrency 4]
    python examples/estimate_on_ray.py before/ after/ --out results/ --address auto     # on a cluster

``caunet estimate-many --engine ray`` does the same without Ray Data, resumes, and writes one file. This is for programs
that are made of Ray datasets already: what comes before and after the estimates can be any of Ray's operations.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import ray
from pyarrow import parquet

from caunet.estimation.pair_files import read_pairs
from caunet.execution.ray import EstimateBatch


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the pairs, estimate, write; 1 if a pair could not be estimated."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", type=Path, help="folder of the first images")
    parser.add_argument("b", type=Path, help="folder of the second images, of the same names")
    parser.add_argument("--out", type=Path, required=True, help="folder for the Parquet files")
    parser.add_argument("--model", default="euclidean", help="the motion model (default: euclidean)")
    parser.add_argument("--concurrency", type=int, default=2, help="actors, each with one core (default: 2)")
    parser.add_argument("--address", help="of a Ray cluster; without it Ray is started here")
    options = parser.parse_args(arguments)

    if not ray.is_initialized():
        ray.init(options.address, log_to_driver=False)
    pairs, _ = read_pairs([options.a.resolve(), options.b.resolve()])
    out = options.out.resolve()
    dataset = ray.data.from_items([{"a": a, "b": b} for a, b in pairs])
    found = dataset.map_batches(
        EstimateBatch,
        fn_constructor_kwargs={"model": options.model},
        concurrency=options.concurrency,
        batch_size=8,
    )
    found.write_parquet(str(out), mode="overwrite")  # nothing runs before this line

    rows = parquet.read_table(out).to_pylist()
    failed = [row for row in rows if row["error"] is not None]
    for row in failed:
        print(f"{row['a']}, {row['b']}: {row['error']}")
    print(f"{len(rows)} pairs, {len(failed)} with an error: {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
