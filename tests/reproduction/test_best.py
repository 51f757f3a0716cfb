"""The recipe ``best``: which runs it asks for, and the two tables made of their results."""

from typing import Any

import pytest

from caunet.models import create_model
from caunet.reproduction.best import best_markdown
from caunet.reproduction.recipes import best, cells
from caunet.reproduction.results import result_name
from caunet.training.config import profile_settings


def result(task: str, model: str, error: float, seed: int = 0, protocol: str = "text") -> dict[str, Any]:
    return {
        "task": task,
        "model": model,
        "seed": seed,
        "recipe": "best",
        "protocol": protocol,
        "data": "cifar10",
        "pairs": "fresh",
        "updates": 20_000,
        "parameters": {"ctn": 692_205, "can-wide": 689_820}.get(model, 331_005),
        "parameter_error": error,
    }


def test_the_grid_has_six_rows_in_two_sizes() -> None:
    found = cells(["best"], profile="best")
    rows = {(cell.config.task, cell.config.protocol) for cell in found}
    assert len(rows) == 6
    assert ("translation", "release") in rows
    for row in rows:
        labels = [c.label for c in found if (c.config.task, c.config.protocol) == row]
        expected = ["ctn", "bln", "bln-wide", "can", "can-wide"]
        assert labels == ([*expected, "can-rank16"] if row[0] == "translation" else expected)
    names = [result_name(cell) for cell in found]
    assert len(set(names)) == len(names)
    assert "integer-translation-can-seed0.json" in names


def test_a_network_has_one_setting_for_all_tasks() -> None:
    for model in ("ctn", "bln", "can"):
        settings = [best(task, model).to_json() for task in ("rotation", "affine")]
        assert settings[0] | {"task": ""} == settings[1] | {"task": ""}
        assert settings[0]["updates"] <= 60_000
        assert settings[0]["batch"] == 100
        create_model(model, "rotation", **best("rotation", model).model_options)


def test_updates_and_data_may_be_changed_but_not_the_rule() -> None:
    cell = cells(["best"], profile="best", updates=50, data="photos", tasks=["rotation"], models=["can"])[0]
    assert (cell.config.updates, cell.config.data, cell.config.rule) == (50, "photos", "multiplicative-adam")
    with pytest.raises(
        ValueError,
        match=r"recipes best, sparse, range, corners, space must be used .* got recipe 'best', profile 'quick'",
    ):
        cells(["best"], profile="quick")
    with pytest.raises(ValueError, match="profile must be one of best, paper, quick, got 'fast'"):
        profile_settings("fast")
    with pytest.raises(ValueError, match="knows ctn, bln, can and their variants, got model 'cat'"):
        profile_settings("best", "cat")


def test_tables_keep_sizes_apart_and_rows_too() -> None:
    text = best_markdown(
        [
            result("rotation", "ctn", 0.5),
            result("rotation", "bln", 0.25),
            result("rotation", "can", 0.75),
            result("rotation", "can", 0.25, seed=1),
            result("rotation", "can-wide", 0.1),
            result("translation", "can", 0.2),
            result("translation", "can", 0.02, protocol="release"),
            result("translation", "can-rank16", 0.004, protocol="release"),
        ]
    )
    lines = text.splitlines()
    assert "| Rotation | 0.500 | **0.250** | 0.500 ± 0.354 | 1, 1, 2 | 2.00× | 670 | 6.4e-04 |" in lines
    assert "| Rotation | 0.500 | – | **0.100** | 1, –, 1 | 0.20× | 670 | 6.4e-04 |" in lines
    assert "| Translation | – | – | 0.200 | –, –, 1 | – | 8.29 | 0.138 |" in lines
    assert "| Translation, integers | – | – | 0.020 | –, –, 1 | – | 9.96 | 0.0010 |" in lines
    assert (
        "| Task | CTN (692k) | BLN (331k) | CAN (331k) | seeds | CAN / best rival | mean | search |" in lines
    )
    assert "CAN with rank 16 instead of 4 (331k parameters): translation, integers 0.0040." in lines


def test_a_size_without_its_can_is_left_out() -> None:
    text = best_markdown([result("rotation", "ctn", 0.5), result("rotation", "can", 0.1)])
    assert "Table I's layers" in text
    assert "Equal parameters" not in text


def test_no_table_without_results() -> None:
    assert best_markdown([result("rotation", "can", 1.0) | {"recipe": "written"}]) == ""
