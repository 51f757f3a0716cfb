"""A unit that the package does not have, added from outside as docs/own-unit.md shows: it does all that others do."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from caunet import nn
from caunet.export import read_metadata
from caunet.models import create_model, describe_model, list_models, registry
from caunet.optim import split_parameters

PAGE = Path(__file__).parents[1] / "docs" / "own-unit.md"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The page, run once from top to bottom in an empty folder; what it registers is forgotten afterwards."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("own-unit")
    names: dict[str, Any] = {"folder": folder}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(compile("\n".join(blocks), PAGE.name, "exec"), names)
    yield names
    nn.RELATIONS.unregister("absolute-difference")
    nn.COMPETITIONS.unregister("clipped")
    registry._MODELS.unregister("adn")


def test_it_is_a_dozen_lines() -> None:
    text = PAGE.read_text(encoding="utf-8")
    body = text[text.index("@nn.register_relation") : text.index("\n\n\nregister_model")]
    assert len([line for line in body.splitlines() if line.strip()]) <= 12


def test_its_equation(page: dict[str, Any]) -> None:
    units = page["AbsoluteDifference"](3, 2, units=2, dtype=torch.float64)
    a, b = np.random.default_rng(0).normal(size=(2, 4, 3))
    b = b[:, :2]
    expected = np.zeros((4, 2))
    for n, k, i, j in np.ndindex(4, 2, 3, 2):
        expected[n, k] += units.weight[k, i, j].item() * abs(a[n, i] - b[n, j])
    found = units(torch.from_numpy(a), torch.from_numpy(b)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_it_learns_and_stays_nonnegative(page: dict[str, Any]) -> None:
    losses, model = page["losses"], page["model"]
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:5])
    constrained, _ = split_parameters(model)
    assert [p is model.relation.weight for p in constrained] == [True]
    assert model.relation.weight.min() >= 0
    assert model.relation.rank is None
    assert (model.parameter_count(), model.multiply_adds()) == (
        40 * 49**2 + 40 * 100 + 100 + 100 * 100 + 100 + 100 * 2 + 2 + 2,
        41 * 49**2 + 40 * 100 + 100 * 100 + 100 * 2,
    )


def test_its_file_holds_it(page: dict[str, Any]) -> None:
    model, again = page["model"], page["again"]
    assert again.spec == model.spec
    assert again.spec["relation"] == "absolute-difference"
    x, y = torch.rand(2, 5, 7, 7, generator=torch.Generator().manual_seed(0)) - 0.5
    assert torch.equal(again(x, y), model(x, y))


def test_it_slides(page: dict[str, Any]) -> None:
    a, b, field = page["a"], page["b"], page["field"]
    assert field.shape == (2, 17, 22)
    for r, c in ((0, 0), (16, 21), (5, 9)):
        x, y = (t[None, 2 * r : 2 * r + 7, 2 * c : 2 * c + 7] for t in (a, b))
        torch.testing.assert_close(field[:, r, c], page["again"](x, y)[0])


def test_onnx_runtime_answers_as_it_does(page: dict[str, Any]) -> None:
    import onnxruntime

    path = page["folder"] / "adn.onnx"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x, y = torch.rand(2, 9, 7, 7, generator=torch.Generator().manual_seed(0)) - 0.5
    with torch.no_grad():
        expected = page["again"](x, y).numpy()
    (found,) = session.run(["z"], {"x": x.numpy(), "y": y.numpy()})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert read_metadata(path)["spec"]["relation"] == "absolute-difference"


def test_it_is_drawn_pruned_and_known_by_name(page: dict[str, Any]) -> None:
    model = page["model"]
    view = model.relation.view(3)
    assert torch.equal(view.matrix, model.relation.weight[3])
    assert torch.equal(model.relation.prunable()["weight"], model.relation.weight.detach())
    assert "adn" in list_models()
    assert describe_model("adn")["about"] == "absolute difference network"
    with pytest.raises(ValueError, match=r"override of adn must be one of .*; got 'rank'"):
        create_model("adn", "translation", rank=2)


def test_the_competition_sums_to_one(page: dict[str, Any]) -> None:
    x, y = torch.rand(2, 5, 11, 11, generator=torch.Generator().manual_seed(0)) - 0.5
    torch.testing.assert_close(page["clipped"].units(x, y).sum(1), torch.ones(5))


def test_registrations_are_checked() -> None:
    with pytest.raises(ValueError, match="a relation named 'bilinear' exists; pass replace=True"):
        nn.register_relation("bilinear", nn.Bilinear)
    assert nn.register_relation("bilinear", nn.Bilinear, replace=True) is nn.Bilinear
    with pytest.raises(TypeError, match=r"cls must be a subclass of caunet\.nn\.Relation"):
        nn.register_relation("linear", torch.nn.Linear)  # type: ignore[type-var]
    with pytest.raises(TypeError, match=r"cls must be a subclass of caunet\.nn\.Competition"):
        nn.register_competition("linear", torch.nn.Linear)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="a model named 'can' exists"):
        registry.register_model("can", relation="bilinear")
    with pytest.raises(
        ValueError, match=r"relation must be one of .*; got 'bilinea' .*did you mean 'bilinear'"
    ):
        registry.register_model("x", relation="bilinea")
    with pytest.raises(ValueError, match="give either base"):
        registry.register_model("x")
    with pytest.raises(ValueError, match=r"option of x must be one of .*; got 'unitz'"):
        registry.register_model("x", "can", unitz=3)
    assert "x" not in list_models()
