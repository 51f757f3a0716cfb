"""The same laws on a Ray cluster of two nodes, one of which is killed on the way."""

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caunet.execution import create_engine
from tests.execution import jobs

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    previous = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), previous or ""])  # workers import the tests' jobs
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
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
        assert engine.workers == 2
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
