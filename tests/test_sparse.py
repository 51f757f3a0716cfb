"""Pruned networks: the same answers from non-zero weights alone; files that hold nothing else."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caunet import tensor_files
from caunet.errors import CheckpointError
from caunet.models import DenseRelations, SparseNetwork, create_model, load_weights, prune, save_weights
from caunet.models.sparse import is_pruned
from caunet.models.weights import SPARSE_FORMAT, network_from_bytes
from caunet.nn import SparseRows, Window
from caunet.nn.competition import COMPETITIONS

NETWORKS = {
    "paper": ("can", {}),
    "relative": (
        "can",
        {
            "relative": True,
            "contrast": 1.0,
            "learn_temperature": 4.0,
            "response_center": True,
            "response_scale": 3.0,
            "target_scale": True,
        },
    ),
    "no biases": ("can", {"bias": False, "response_center": True}),
    "bilinear": ("bln", {"contrast": 1.0}),
    "concatenation": ("ctn", {}),
    "full rank": ("can-full", {}),
    "softplus": ("can-softplus", {}),
}


def network(kind: str, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    name, options = NETWORKS[kind]
    size = {"hidden": (30, 20)} if name == "ctn" else {"units": 12, "hidden": (9,)}
    model = create_model(name, "affine", patch=5, seed=1, dtype=dtype, **size, **options)
    return model if kind == "softplus" else prune(model, keep=0.08)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.floats(0, 1), st.integers(0, 9))
def test_rows_are_a_product_of_matrices(
    rows: int, inputs: int, columns: int, share: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    matrix = generator.normal(size=(rows, inputs)) * (generator.random((rows, inputs)) < share)
    x = generator.normal(size=(inputs, columns))
    sparse = SparseRows(torch.from_numpy(matrix))
    np.testing.assert_allclose((sparse @ torch.from_numpy(x)).numpy(), matrix @ x, atol=1e-12)
    assert sparse.count == np.count_nonzero(matrix)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("count", [0, 1, 300])
def test_the_answers_are_those_of_the_network(kind: str, count: int) -> None:
    model = network(kind)
    x, y = torch.rand(2, count, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z = SparseNetwork(model)(x, y)
    assert not z.requires_grad
    torch.testing.assert_close(z, model(x, y).detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["paper", "relative", "bilinear"])
def test_fields_of_pruned_networks(kind: str) -> None:
    model = network(kind)
    assert is_pruned(model)
    a, b = torch.rand(2, 14, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    field = DenseRelations(model)(a, b, stride=2)
    for row in range(5):
        for column in range(4):
            part = (slice(2 * row, 2 * row + 5), slice(2 * column, 2 * column + 5))
            torch.testing.assert_close(field[:, row, column], model(a[part][None], b[part][None])[0].detach())


def test_a_field_of_many_columns_is_that_of_the_whole_network() -> None:
    """More positions than are computed at once, and no multiple of any of the sizes of blocks."""
    model = network("relative")
    a, b = torch.rand(2, 75, 83, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = model.decode(model.units(*(Window((5, 5)).patches(image[None, None]) for image in (a, b))))
    torch.testing.assert_close(DenseRelations(model)(a, b), whole.detach().mT.reshape(4, 71, 79))


def test_another_decoder_is_used_as_it_is() -> None:
    model = network("relative")
    model.decoder = torch.nn.Sequential(torch.nn.LayerNorm(12), torch.nn.Linear(12, 4)).double()
    x, y = torch.rand(2, 9, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(SparseNetwork(model)(x, y), model(x, y).detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", list(COMPETITIONS))
def test_competitions_of_columns(name: str) -> None:
    competition = COMPETITIONS.lookup(name).create(0.3, 4.0).double()
    with torch.no_grad():
        for learned in competition.parameters():
            learned.fill_(0.2)
    h = torch.rand(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(competition.columns(h), competition(h.T).T)


def test_wrong_input_is_named() -> None:
    with pytest.raises(TypeError, match="model must be a RelationNetwork"):
        SparseNetwork(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one shape"):
        SparseNetwork(network("paper"))(torch.zeros(2, 5, 5), torch.zeros(3, 5, 5))
    with pytest.raises(ValueError, match=r"x must have the shape \(3, columns\)"):
        SparseRows(torch.eye(3)) @ torch.zeros(2, 2)


class TestFiles:
    def path(self, folder: Path) -> Path:
        save_weights(network("relative", torch.float32), folder / "w.safetensors")
        return folder / "w.safetensors"

    def test_what_is_saved_is_loaded(self, tmp_path: Path) -> None:
        model, whole = network("relative", torch.float32), tmp_path / "whole.safetensors"
        loaded = load_weights(self.path(tmp_path))
        assert all(torch.equal(t, loaded.state_dict()[name]) for name, t in model.state_dict().items())
        name, options = NETWORKS["relative"]
        save_weights(create_model(name, "affine", patch=5, seed=1, units=12, hidden=(9,), **options), whole)
        assert self.path(tmp_path).stat().st_size < 0.6 * whole.stat().st_size

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"index": [5, 3]}, "must ascend"),
            ({"index": [3, 3]}, "must ascend"),
            ({"index": [-1, 3]}, "must ascend"),
            ({"index": [3, 1200]}, "must ascend"),
            ({"index": [3]}, "as many places"),
            ({"shape": [10**5, 10**5]}, "at most"),
            ({"shape": [-1, 25]}, "shapes by name"),
            ({"shape": [48, 26]}, "does not fit its own spec"),
            ({"shape": "everything"}, "shapes by name"),
            ({"sparse": None}, "shapes by name"),
            ({"drop": True}, "by its places and values"),
            ({"twice": True}, "by its places and values"),
        ],
    )
    def test_hostile_content_under_a_right_hash(self, tmp_path: Path, change: dict, message: str) -> None:
        tensors, meta = tensor_files.unpack(self.path(tmp_path).read_bytes(), SPARSE_FORMAT, "file")
        assert "relation.u.index" in tensors
        if "index" in change:
            tensors["relation.u.index"] = torch.tensor(change["index"], dtype=torch.int32)
            tensors["relation.u.value"] = torch.ones(2)
        if "shape" in change:
            meta["sparse"]["relation.u"] = change["shape"]
        if "sparse" in change:
            meta["sparse"] = change["sparse"]
        if "drop" in change:
            del tensors["relation.u.value"]
        if "twice" in change:
            tensors["relation.u"] = torch.ones(48, 25)
        with pytest.raises(CheckpointError, match=message):
            network_from_bytes(tensor_files.pack(tensors, meta, SPARSE_FORMAT), "file")


def test_the_command_prunes_a_file_and_evaluate_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from caunet.cli import main

    whole, small = tmp_path / "whole.safetensors", tmp_path / "small.safetensors"
    model = create_model("can", "rotation", patch=11, units=10, seed=0)
    save_weights(model, whole)
    assert main(["weights", "prune", str(whole), str(small), "--keep", "13000"]) == 0
    assert capsys.readouterr().out.startswith(f"13,000 of {model.parameter_count():,} weights are not zero; ")
    assert load_weights(small).nonzero_count() == 13_000
    assert main(["evaluate", str(small), "--data", "photos", "--pairs", "20"]) == 0
    assert "13,000 of" in capsys.readouterr().out
