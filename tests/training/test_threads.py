"""CPU threads of a run: one for a small network unless told otherwise, and torch's own number afterwards."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from caunet.models import create_model
from caunet.training import train
from caunet.training.loop import Update
from caunet.training.threads import choose_threads
from tests.training.small import config, digest, sources


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """torch's number of threads at each update; it begins with three, and the environment says nothing."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    numbers: list[int] = []
    call = Update.__call__

    def noted(self: Update, *arguments: Any) -> torch.Tensor:
        numbers.append(torch.get_num_threads())
        return call(self, *arguments)

    monkeypatch.setattr(Update, "__call__", noted)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield numbers
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 1),
        ({"threads": 2}, 2),
        ({"batch": 400, "model_options": {"units": 60}}, 3),  # weights times pairs: not small
    ],
)
def test_a_small_network_trains_with_one_thread(
    tmp_path: Path, seen: list[int], options: dict[str, Any], expected: int
) -> None:
    threads = options.pop("threads", None)
    settings = config(updates=3, **options)
    result = train(settings, tmp_path / "run", progress=False, sources=sources, threads=threads)
    assert seen == [expected] * 3
    assert result.result is not None
    assert result.result["environment"]["threads"] == expected
    assert torch.get_num_threads() == 3


def test_the_environment_decides(tmp_path: Path, seen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    train(config(updates=2), tmp_path / "run", progress=False, sources=sources)
    assert seen == [3, 3]


def test_threads_are_put_back_after_an_exception(
    tmp_path: Path, seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Update.__call__

    def failing(self: Update, *arguments: Any) -> torch.Tensor:
        noted(self, *arguments)
        raise RuntimeError("no more")

    monkeypatch.setattr(Update, "__call__", failing)
    with pytest.raises(RuntimeError, match="no more"):
        train(config(), tmp_path / "run", progress=False, sources=sources)
    assert seen == [1]
    assert torch.get_num_threads() == 3


def test_the_same_bits_whatever_torch_had(tmp_path: Path, seen: list[int]) -> None:
    for count in (1, 3):
        torch.set_num_threads(count)
        train(config(updates=20), tmp_path / str(count), progress=False, sources=sources)
    assert seen == [1] * 40
    assert digest(tmp_path / "1") == digest(tmp_path / "3")


@pytest.mark.parametrize("threads", [0, -1, True, 1.5])
def test_a_wrong_number_is_refused_before_anything_is_written(tmp_path: Path, threads: Any) -> None:
    with pytest.raises(ValueError, match="threads must be a whole number of at least 1, got"):
        train(config(), tmp_path / "run", progress=False, sources=sources, threads=threads)
    assert not (tmp_path / "run").exists()


def test_nothing_is_chosen_for_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    model = create_model("can", "rotation", units=12)
    assert choose_threads(None, model, 20, "cpu") == 1
    assert choose_threads(None, model, 20, "cuda:0") is None
    assert choose_threads(2, model, 20, "cuda:0") == 2
