"""The same laws on a Ray cluster of two nodes, one of which is killed on the way."""

import dataclasses
import functools
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

import caunet
from caunet.execution import create_engine
from caunet.reproduction.grid import run_grid
from caunet.reproduction.recipes import cells
from tests.estimation.scenes import pair, quad
from tests.execution import jobs

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    previous = os.environ.get("PYTHONPATH")
    # Workers import the tests' jobs, and caunet from where it is tested.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src"), previous or ""])
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        os.environ.pop("PYTHONPATH") if previous is None else os.environ.__setitem__("PYTHONPATH", previous)


def test_a_cluster_gives_what_one_process_gives_while_a_node_dies(cluster: Any, tmp_path: Path) -> None:
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    with create_engine("ray", address=cluster.address) as engine:
        assert engine.workers == 3
        outcomes = {}
        for outcome in engine.map(jobs.slow_fail_on_three, range(60), ordered=False):
            assert outcome.index not in outcomes, "each item has one outcome"
            outcomes[outcome.index] = outcome
            if len(outcomes) == 10:
                cluster.remove_node(second, allow_graceful=False)
        found = [outcomes[index].value for index in range(60)]
        assert found == [None if i == 3 else i * i for i in range(60)]
        assert outcomes[3].error.message == "three is bad"
        # A worker that dies is replaced; the factory is called once in each.
        died = list(engine.run(functools.partial(jobs.die_once, tmp_path), range(5)))
        assert [outcome.result() for outcome in died] == [i * i for i in range(5)]


def test_a_grid_on_ray_ends_in_the_bits_of_the_serial_one(cluster: Any, tmp_path: Path) -> None:
    short = {
        "updates": 12,
        "batch": 20,
        "per_image": 1,
        "test_pairs": 50,
        "test_every": 6,
        "compile": "never",
    }
    wanted = [
        dataclasses.replace(cell, config=dataclasses.replace(cell.config, **short))
        for cell in cells(["written"], tasks=["rotation"], models=["ctn", "can"], profile="quick", seeds=2)
    ]
    assert len({cell.name for cell in wanted}) == 4
    assert run_grid(wanted, tmp_path / "serial", engine="serial").complete
    assert run_grid(wanted, tmp_path / "ray", engine="ray", workers=2, address=cluster.address).complete
    for cell in wanted:
        one, other = (
            (tmp_path / name / cell.name / "weights.safetensors").read_bytes() for name in ("serial", "ray")
        )
        assert one == other
        assert len(one) > 10_000


def test_estimates_inside_of_a_dataset(cluster: Any, tmp_path: Path) -> None:
    """As a reader would run the example; what comes out is what ``estimate`` gives."""
    for k in range(3):
        for name, image in zip("ab", pair(quad(64, 3, seed=k), 64, seed=k), strict=True):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.fromarray((image * 255).round().astype(np.uint8)).save(tmp_path / name / f"{k}.png")
    for name in "ab":
        (tmp_path / name / "bad.jpg").write_bytes(b"no image")
    spec = importlib.util.spec_from_file_location("example", ROOT / "examples" / "estimate_on_ray.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    folders = [str(tmp_path / name) for name in "ab"]
    options = ["--out", str(tmp_path / "out"), "--model", "affine", "--concurrency", "1"]
    assert example.main([*folders, *options, "--address", cluster.address]) == 1  # bad.jpg
    rows = parquet.read_table(tmp_path / "out").to_pylist()
    assert sorted(row["a"][-5:] for row in rows) == ["0.png", "1.png", "2.png", "d.jpg"]
    for row in rows:
        if row["a"].endswith("bad.jpg"):
            assert row["error"].startswith("ImageError")
            continue
        expected = caunet.estimate(row["a"], row["b"], model="affine", threads=1)
        matrix = [[row[f"h{r}{c}"] for c in (1, 2, 3)] for r in (1, 2, 3)]
        np.testing.assert_array_equal(matrix, expected.matrix)
