"""Measuring: who is how far off is written down once, and summed up as plain arithmetic would."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from caunet.benchmark import draw_pair, methods, table
from caunet.benchmark.run import Plan, forget, load, measure, quota, run
from caunet.errors import DataError

PLAN = Plan(pairs=3, conditions=("clean", "blur"), motions=(0.03, 0.1), group="test", side=48)


class Counter:
    """A method that says a fixed matrix and counts how often it is asked."""

    def __init__(self, name: str, answer: np.ndarray | Exception | None, share: float = 1.0) -> None:
        self.calls: list[tuple[np.ndarray, np.ndarray]] = []
        self.answer = answer
        self.method = methods.Method(name, name, "homography", "numpy", lambda: self.register, share)

    def register(self, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        self.calls.append((a, b))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def three() -> list[Counter]:
    return [
        Counter("caunet", np.eye(3)),
        Counter("ecc", RuntimeError("does not converge")),
        Counter("sift", None),
    ]


def test_all_get_the_same_pairs_and_errors_are_right(tmp_path: Path) -> None:
    fakes = three()
    rows = run(PLAN, [fake.method for fake in fakes], tmp_path / "rows.jsonl")
    assert len(rows) == 3 * 2 * 2
    for fake in fakes:
        assert len(fake.calls) == 12 + 1  # and once to warm up
    for first, other in zip(fakes[0].calls, fakes[1].calls, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(first, other, strict=True))
    for (condition, motion, index), row in rows.items():
        pair = draw_pair("test", condition, motion, index, side=48)
        s = 47.0
        corners = np.array([[0, 0, 1], [s, 0, 1], [s, s, 1], [0, s, 1]]) @ pair.H.numpy().T
        moved = corners[:, :2] / corners[:, 2:] - np.array([[0, 0], [s, 0], [s, s], [0, s]])
        assert row["methods"]["caunet"]["error"] == pytest.approx(
            np.linalg.norm(moved, axis=1).mean(), abs=1e-4
        )
        assert row["methods"]["ecc"]["error"] is None
        assert row["methods"]["ecc"]["note"] == "RuntimeError: does not converge"
        assert row["methods"]["sift"]["error"] is None
        assert row["photo"] == ("chelsea", "page")[index % 2]


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    whole = run(PLAN, [fake.method for fake in three()], path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:6]) + lines[6][:40])  # killed while it wrote its sixth pair
    fakes = three()
    again = run(PLAN, [fake.method for fake in fakes], path)
    assert len(fakes[0].calls) == 7 + 1

    def errors(rows: dict) -> dict:
        return {key: {n: r["error"] for n, r in row["methods"].items()} for key, row in rows.items()}

    assert errors(again) == errors(whole) == errors(load(path))
    fakes = three()
    run(PLAN, [fake.method for fake in fakes], path)
    assert not fakes[0].calls


def test_a_method_can_be_added_later(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    first, second, _ = three()
    run(PLAN, [first.method], path)
    rows = run(PLAN, [first.method, second.method], path)
    assert (len(first.calls), len(second.calls)) == (13, 13)
    assert all(set(row["methods"]) == {"caunet", "ecc"} for row in rows.values())


def test_a_method_can_be_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    first, second, _ = three()
    forget(path, ["caunet"])  # nothing there yet
    run(PLAN, [first.method, second.method], path)
    forget(path, ["caunet"])
    assert all(set(row["methods"]) == {"ecc"} for row in load(path).values())
    run(PLAN, [first.method, second.method], path)
    assert (len(first.calls), len(second.calls)) == (26, 13)


def test_files_of_other_pairs_or_damaged_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    fake = three()[0]
    run(PLAN, [fake.method], path)
    with pytest.raises(DataError, match="holds other pairs"):
        run(Plan(pairs=1, group="test", side=48, seed=1), [fake.method], path)
    path.write_text(path.read_text().replace('"methods"', "methods", 1))
    with pytest.raises(DataError, match="line 2: not JSON"):
        load(path)


def test_slow_methods_get_fewer_pairs_but_no_fewer_than_twenty() -> None:
    slow = Counter("kornia", None, share=0.2).method
    assert [quota(slow, n) for n in (5, 20, 60, 100, 200)] == [5, 20, 20, 20, 40]
    assert quota(Counter("ecc", None).method, 100) == 100


def test_no_answer_is_infinitely_far() -> None:
    picture, eye = np.zeros((48, 48), np.uint8), torch.eye(3, dtype=torch.float64)
    to_infinity = np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 0]])
    for answer in (None, np.full((3, 3), math.nan), to_infinity):
        assert measure(Counter("x", answer).method, picture, picture, eye)["error"] is None
    aside = np.array([[1.0, 0, 3], [0, 1, 4], [0, 0, 1]])
    assert measure(Counter("x", aside).method, picture, picture, eye)["error"] == 5.0


def rows_of(errors: dict[str, list[float | None]], condition: str = "clean", motion: float = 0.1) -> dict:
    count = max(len(values) for values in errors.values())
    return {
        (condition, motion, i): {
            "condition": condition,
            "motion": motion,
            "index": i,
            "methods": {n: {"error": v[i], "ms": 10.0 * i} for n, v in errors.items() if i < len(v)},
        }
        for i in range(count)
    }


def test_summary_is_plain_arithmetic() -> None:
    errors = [0.5, 2.0, None, 0.1, 5.0, 0.9, 0.2, 0.3, 0.4, 0.6]
    (cell,) = table.summarize(rows_of({"caunet": errors}))
    far = np.array([np.inf if e is None else e for e in errors])
    assert cell["median"] == pytest.approx(np.median(far))
    assert cell["p90"] == 5.0  # nine of ten are not farther
    assert (cell["below_1"], cell["below_3"]) == (0.7, 0.8)
    assert (cell["pairs"], cell["failures"], cell["ms"]) == (10, 1, 45.0)
    assert cell["curve"] == [np.mean(far < limit).round(4) for limit in table.LIMITS]
    json.dumps(cell, allow_nan=False)


def test_tables_mark_the_best_and_own_up() -> None:
    rows = rows_of({"caunet": [0.2, 0.3, 0.4], "ecc": [0.1, 0.2, None], "sift": [None, None, 1.5]})
    summary = table.summarize(rows)
    compact = table.compact(summary)
    assert "| caunet | 0.300, **100 %** | 10 |" in compact
    assert "| OpenCV ECC | **0.200**, 67 % | 10 |" in compact
    assert "| SIFT + MAGSAC | lost, 0 % | 10 |" in compact
    line = "| ±10 % | clean | OpenCV ECC | **0.200** | lost | 67 % | 67 % | 10 | 1 | 3 |"
    assert line in table.full(summary).markdown()
    assert table.verdict(summary) == ["±10 % clean: median 0.300, ecc 0.200"]
    close = table.summarize(rows_of({"caunet": [0.104] * 3, "ecc": [0.1] * 3}))
    assert table.verdict(close) == []


def test_a_method_of_fewer_pairs_is_held_against_the_same_ones() -> None:
    # Ours is worse than kornia over all, but not on the pairs that kornia had.
    rows = rows_of({"caunet": [0.1] * 20 + [0.5] * 30, "kornia": [0.2] * 20, "ecc": [0.3] * 50})
    summary = table.summarize(rows)
    assert [cell["median"] for cell in summary] == [0.5, 0.3, 0.2]
    assert table.verdict(summary) == ["±10 % clean: median 0.500, ecc 0.300"]
    lost = table.summarize(rows_of({"caunet": [None] * 4, "ecc": [0.1] * 4}))
    assert table.verdict(lost) == [
        "±10 % clean: median lost, ecc 0.100",
        "±10 % clean: below 1 px 0%, ecc 100%",
    ]


def test_tables_say_what_a_method_is_not() -> None:
    rows = rows_of({"caunet": [0.2] * 30, "phase": [2.0] * 30, "kornia": [0.1] * 20})
    compact = table.compact(table.summarize(rows))
    assert "phase correlation (shift only)" in compact
    assert "kornia ImageRegistrator (20 pairs)" in compact


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pairs": 0}, "pairs must be a number of at least 1, got 0"),
        ({"conditions": ("fog",)}, "conditions must be names out of clean, .* got"),
    ],
)
def test_bad_plans(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(**arguments)
