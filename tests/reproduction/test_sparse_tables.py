"""Tables and figure of pruned networks, and of losses, from results made up here."""

from pathlib import Path
from typing import Any

from PIL import Image

from caunet.reproduction.losses import losses_markdown
from caunet.reproduction.recipes import SPARSE_SIZE, cells
from caunet.reproduction.sparse import draw, sparse_markdown


def result(recipe: str, model: str, error: float, seed: int = 0, **more: Any) -> dict[str, Any]:
    base = {"recipe": recipe, "task": "rotation", "protocol": "text", "data": "cifar10", "pairs": "fresh"}
    size = {"updates": 20_000, "parameters": 331_000, "nonzero": 320_000, "multiply_adds": 359_181}
    return {**base, **size, "model": model, "seed": seed, "parameter_error": error, **more}


RESULTS = [
    result("sparse", "can-wide", 0.04),
    result("sparse", "can-wide", 0.06, seed=1),
    result("sparse", "bln-wide", 0.07),
    result("best", "can", 0.08),
    result("best", "bln", 0.055),
    result("best", "ctn", 0.19),
]


def test_the_lowest_mean_is_bold_and_seeds_are_counted() -> None:
    row = sparse_markdown(RESULTS).splitlines()[-1]
    fields = [field.strip() for field in row.strip("|").split("|")]
    assert fields == [
        "Rotation", "**0.050 ± 0.014**", "0.080", "–", "0.070", "0.190", "0.055",
        "2, 1, –, 1, 1, 1", "320,000", "359,181", "670", "6.4e-04",
    ]  # fmt: skip
    assert sparse_markdown([]) == ""


def test_of_networks_that_began_otherwise_the_best_counts_unless_it_has_fewer_seeds() -> None:
    more = [result("sparse", "bln-rank16", 0.03), result("sparse", "can-rank16", 0.02)]
    row = sparse_markdown([*RESULTS, *more]).splitlines()[-1]
    fields = [field.strip() for field in row.strip("|").split("|")]
    assert (fields[1], fields[4]) == ("0.050 ± 0.014", "**0.030**")  # CAN with two seeds, BLN with one each


def test_each_parameter_has_its_r2() -> None:
    each = {"a11": {"error": 0.005, "r2": 0.94}, "p1": {"error": 3e-5, "r2": 0.02}}
    one = result("range", "can", 0.0028, task="projective", per_parameter=each, corner_error=0.59)
    text = losses_markdown([one])
    assert "| in ranges | CAN | 0.0050 (0.940) | 3.0e-05 (0.020) | 0.0028 | 0.590 | 1 |" in text
    assert "| | exhaustive search | – | – | – | – | |" in text
    worse = {"a11": {"error": 0.007, "r2": 0.90}, "p1": {"error": 3e-5, "r2": -0.0204}}
    other = one | {"seed": 1, "per_parameter": worse, "parameter_error": 0.0038, "corner_error": 0.61}
    assert (
        "| in ranges | CAN | 0.0060 (0.920) | 3.0e-05 (0.000) | 0.0033 ± 7.1e-04 | 0.600 | 2 |"
        in losses_markdown([one, other])
    )


def test_losses_are_told_apart() -> None:
    each = {"a11": {"error": 0.005, "r2": 0.94}, "p1": {"error": 3e-5, "r2": 0.02}}
    old = [
        result("best", "can", error, seed, task="projective", corner_error=0.57 + error)
        for seed, error in enumerate((0.001, 0.003))
    ]
    new = result("corners", "can", 0.0027, task="projective", per_parameter=each, corner_error=0.58)
    text = losses_markdown([*old, new, result("best", "can-wide", 0.001, task="projective")])
    assert text.startswith("cifar10, text protocol, fresh pairs, 20,000 updates, 1 to 2 seeds.")
    assert "| of z | CAN | – | – | 0.0020 ± 0.0014 | 0.572 | 2 |" in text
    assert "| of corners | CAN | 0.0050 (0.940) | 3.0e-05 (0.020) | 0.0027 | 0.580 | 1 |" in text
    assert losses_markdown(old) == ""


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    tasks = ("translation", "rotation", "scaling", "affine", "projective")
    errors = [{"nonzero": 331_000, "parameter_error": 0.1}, {"nonzero": 50_000, "parameter_error": 0.2}]
    measured = {"networks": {f"{n}-{t}": {"errors": errors} for n in ("can", "bln", "ctn") for t in tasks}}
    draw(measured, RESULTS, tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as figure:
        assert figure.size[0] > 1000


def test_cells_of_the_recipes() -> None:
    found = cells(["sparse"], profile="best", models=["can"])
    assert {cell.config.prune for cell in found} == {SPARSE_SIZE}
    assert [cell.config.task for cell in found if cell.label == "can-rank16"] == [
        "translation",
        "translation",
        "rotation",
    ]
    lengths = {(cell.config.task, cell.config.protocol): cell.config.updates for cell in found}
    assert {rows: updates for rows, updates in lengths.items() if updates != 20_000} == {
        ("translation", "release"): 40_000
    }
    assert {c.config.updates for c in cells(["sparse"], profile="best", updates=700)} == {700}
    for name in ("range", "corners"):
        found = cells([name], profile="best")
        assert [(cell.label, cell.config.task, cell.config.loss) for cell in found] == [
            (model, "projective", name) for model in ("ctn", "bln", "can")
        ]
