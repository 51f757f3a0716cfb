"""The table of tasks of volumes, and the recipe behind it."""

import pytest

from caunet.models import create_model
from caunet.reproduction.in_space import space_markdown
from caunet.reproduction.recipes import SPACE_TASKS, cells, space


def result(task: str, model: str, error: float, seed: int = 0) -> dict:
    return {
        "recipe": "space",
        "task": task,
        "model": model,
        "seed": seed,
        "updates": 3000,
        "data": "shapes3",
        "protocol": "text",
        "pairs": "fresh",
        "parameters": 863_806,
        "parameter_error": error,
    }


def test_the_lowest_error_is_bold_and_baselines_stand_behind() -> None:
    results = [
        result("rotation3", "ctn", 40.0),
        result("rotation3", "bln", 90.0),
        *(result("rotation3", "can", error, seed) for seed, error in enumerate((20.0, 22.0, 24.0))),
        result("affine3", "ctn", 0.01),
        result("affine3", "can", 0.02),
    ]
    beside = {
        "always the mean": {"rotation3": {"parameter_error": 300.0}, "affine3": {"parameter_error": 0.03}},
        "search": {"rotation3": {"parameter_error": 5.0}},
    }
    text = space_markdown(results, beside)
    assert text.startswith(
        "shapes3, text protocol, fresh pairs, 3,000 updates, 1 to 3 seeds; mean ± standard deviation"
    )
    rows = {
        line.split("|")[1].split(",")[0].strip(): line for line in text.splitlines() if line.startswith("|")
    }
    assert [cell.strip() for cell in rows["Rotation"].split("|")[2:-1]] == [
        "40.0",
        "90.0",
        "**22.0 ± 2.00**",
        "–",
        "1, 1, 3, –",
        "0.55×",
        "300",
        "5.00",
    ]
    assert [cell.strip() for cell in rows["Affine"].split("|")[2:-1]] == [
        "**0.010**",
        "–",
        "0.020",
        "–",
        "1, –, 1, –",
        "2.00×",
        "0.030",
        "–",
    ]
    assert "Translation" not in rows
    assert (
        "| CTN (864k) | BLN (864k) | CAN (864k) | CAN-wide | seeds | CAN / best rival | always the mean | search |"
        in text
    )
    assert space_markdown([]) == ""


def test_degrees_and_voxels_have_rows_of_their_own() -> None:
    def parts(angle: float, shift: float) -> dict:
        each = {"angle": (angle - 1, angle, angle + 1), "shift": (shift, shift, shift)}
        names = {
            f"{k}_{axis}": {"error": v} for k, vs in each.items() for axis, v in zip("xyz", vs, strict=True)
        }
        return {"per_parameter": names, "parameter_error": (angle + shift) / 2}

    results = [
        result("rigid3", "ctn", 0.0) | parts(90.0, 0.5),
        result("rigid3", "can", 0.0) | parts(60.0, 1.0),
    ]
    text = space_markdown(results, {"always the mean": {"rigid3": parts(300.0, 3.0)}})
    assert "| Rigid: its three angles of ±30° | 90.0 | – | **60.0** | – | 1, –, 1, – | 0.67× | 300 |" in text
    assert (
        "| Rigid: its three shifts of ±3 voxels | **0.500** | – | 1.00 | – | 1, –, 1, – | 2.00× | 3.00 |"
        in text
    )


def test_cells_are_those_of_the_profile_on_volumes() -> None:
    found = cells(["space"], tasks=SPACE_TASKS, profile="best", updates=300)
    assert [cell.label for cell in found[:4]] == ["ctn", "bln", "can", "can-wide3"]
    assert {(c.config.data, c.config.patch, c.config.pairs, c.config.updates) for c in found} == {
        ("shapes3", 7, "fresh", 300)
    }
    assert found[2].config == space("translation3", "can", updates=300)
    with pytest.raises(ValueError, match=r"tasks must be of translation3, .* for space, got rotation"):
        cells(["space"], tasks=["rotation"], profile="best")
    with pytest.raises(ValueError, match=r"tasks must be of translation, .* for best, got rotation3"):
        cells(["best"], tasks=["rotation3"], profile="best")


def test_the_wide_network_has_the_size_of_ctn() -> None:
    sizes = {name: create_model(name, "rotation3", seed=0).parameter_count() for name in ("ctn", "can-wide3")}
    assert sizes["can-wide3"] == pytest.approx(sizes["ctn"], rel=0.001)
