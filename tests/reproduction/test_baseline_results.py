"""The columns of what has learned nothing, and whose figures stand beside ours."""

from pathlib import Path

import numpy as np
import pytest
import torch

from caunet.data import PairSource, load_images
from caunet.reproduction import tables
from caunet.reproduction.baseline_results import matching, measure


def result(**changes: object) -> dict:
    base = {
        "recipe": "written",
        "task": "rotation",
        "protocol": "text",
        "data": "cifar10",
        "model": "can",
        "seed": 0,
    }
    return {**base, "updates": 60_000, "parameter_error": 2.0, "transformation_error": 0.1, **changes}


def test_the_mean_has_the_variance_of_z(pictures: Path) -> None:
    found = measure(str(pictures), "rotation", "text", pairs=200)
    source = PairSource(load_images(str(pictures), split="test"), "rotation", "text")
    z = source.batch(0, torch.arange(min(200, len(source)))).z.numpy()
    assert found["mean"]["parameter_error"] == pytest.approx(float(np.mean(z**2)))
    assert found["search"]["parameter_error"] < found["mean"]["parameter_error"]


def test_baselines_stand_in_the_table_of_the_same_pairs_only() -> None:
    known = [{"data": "cifar10", "task": "rotation", "protocol": "text", "mean": {"parameter_error": 670.0}}]
    assert matching([result()], "parameter_error", known) == {"mean": 670.0}
    assert matching([result(protocol="release")], "parameter_error", known) == {}
    table = tables.make_table([result()], "parameter_error", known)
    assert table.baselines == {"rotation": {"mean": 670.0, "search": None}}
    assert tables.layout(table).markdown().splitlines()[0].endswith("| mean | search |")


def test_the_papers_figures_only_beside_its_images_and_length() -> None:
    for changes in (
        {"data": "photos"},
        {"updates": 6_000},
        {"config": {"decay_every": 100}},
        {"config": {"schedule": "cosine"}},
    ):
        table = tables.make_table([result(**changes)], "parameter_error")
        assert not table.comparable
        assert "paper" not in tables.markdown(table)
    assert tables.make_table([result()], "parameter_error").rows["rotation"]["can"].paper == 3.518


def test_diverged_runs_are_counted_and_in_no_mean() -> None:
    runs = [result(seed=0), result(seed=1, parameter_error=None, transformation_error=None, diverged_at=9301)]
    entry = tables.make_table(runs, "parameter_error").rows["rotation"]["can"]
    assert (entry.ours, entry.diverged) == (2.0, 1)
    assert "2.00 (1 diverged)" in tables.markdown(tables.make_table(runs, "parameter_error"))
