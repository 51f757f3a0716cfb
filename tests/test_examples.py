"""The examples do what they say, run as a reader would run them."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def worked() -> ModuleType:
    spec = importlib.util.spec_from_file_location("worked_example", EXAMPLES / "worked_example.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_matrices_are_the_papers(worked: ModuleType) -> None:
    rows = ["00000 10000 01000 00100 00010", "10000 01000 00100 00010 00001", "01000 00100 00010 00001 00000"]
    expected = [[[int(x) for x in row] for row in matrix.split()] for matrix in rows]
    np.testing.assert_array_equal(worked.paper_weights().numpy(), expected)


def test_cuts_are_the_papers(worked: ModuleType) -> None:
    c = torch.arange(7.0).expand(3, 7)
    a, b = worked.cut(c, torch.tensor([-1, 0, 1]))
    assert a.tolist() == [[1, 2, 3, 4, 5]] * 3
    assert b.tolist() == [[2, 3, 4, 5, 6], [1, 2, 3, 4, 5], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("seed", [0, 1])
def test_every_translation_is_right(worked: ModuleType, seed: int) -> None:
    assert worked.accuracy(10_000, torch.Generator().manual_seed(seed)) == 1.0


def test_a_constant_sequence_is_a_special_case(worked: ModuleType) -> None:
    """All three units are 0: the paper's "except for some special cases"; the first wins."""
    a, b = worked.cut(torch.ones(1, 7), torch.tensor([1]))
    assert worked.infer(a, b).tolist() == [-1]


def test_prints_matrices_units_and_verdict(worked: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert worked.main(["--sequences", "500", "--seed", "4"]) == 0
    text = capsys.readouterr().out
    table = [line for line in text.splitlines() if re.match(r"^[\s\d.]+$", line) and line.strip()]
    columns = np.array([[float(x) for x in line.split()] for line in table]).reshape(5, 3, 5)
    for k, offset in enumerate((-1, 0, 1)):
        assert (np.diagonal(columns[:, k], offset) == 0).all()
    assert re.findall(r"\[([01, ]+)\]\s+(-?\d)$", text, re.M) == [
        ("1, 0, 0", "-1"),
        ("0, 1, 0", "0"),
        ("0, 0, 1", "1"),
    ]
    assert "500 random sequences: 100.00% of the translations right" in text


def test_tells_failure(worked: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worked, "accuracy", lambda *_: 0.5)
    assert worked.main(["--sequences", "1"]) == 1
