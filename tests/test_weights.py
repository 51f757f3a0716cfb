"""Weights in files: what is saved is what is loaded, and nothing else ever is."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save, save_file
from torch import nn

from caunet import tensor_files
from caunet.cli import main
from caunet.errors import CheckpointError
from caunet.files import sha256
from caunet.models import RelationNetwork, create_model, load_weights, save_weights
from caunet.models.upgrade import upgrade_weights
from caunet.models.weights import FORMAT


@pytest.fixture
def model() -> RelationNetwork:
    return create_model("can", "rotation", 5, units=4, seed=0)


def _damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    tensors, meta = tensor_files.unpack(data, FORMAT, path)
    if how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "text":
        path.write_text("these are not the weights you are looking for")
    elif how == "pickle":
        torch.save({"a": torch.zeros(2)}, path)
    elif how == "foreign":
        save_file({"a": torch.zeros(2)}, path)
    elif how == "shape":
        tensor_files.write(path, {**tensors, "decoder.0.weight": torch.zeros(3, 3)}, meta, FORMAT)
    elif how == "kind":
        tensor_files.write(path, {**tensors, "decoder.0.bias": torch.zeros(100).long()}, meta, FORMAT)
    elif how == "size":
        tensor_files.write(path, tensors, {"spec": {**meta["spec"], "units": 10**12}}, FORMAT)
    elif how == "spec":
        tensor_files.write(path, tensors, {"spec": {"name": "can", "color": "red"}}, FORMAT)
    elif how == "unit":
        tensor_files.write(path, tensors, {"spec": {**meta["spec"], "relation": "mine"}}, FORMAT)
    elif how == "sign":
        tensor_files.write(path, {**tensors, "relation.u": -tensors["relation.u"]}, meta, FORMAT)
    elif how in ("nan", "inf"):
        tensor_files.write(path, {**tensors, "decoder.0.bias": torch.full((100,), float(how))}, meta, FORMAT)
    elif how == "earlier":
        path.write_bytes(save(tensors, metadata={"format": "caunet-weights-1", "spec": "{}"}))
    elif how == "missing":
        path.unlink()
    elif how == "directory":
        path.unlink()
        path.mkdir()
    elif how == "pipe":
        path.unlink()
        os.mkfifo(path)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "damaged"),
        ("flipped", "damaged: its content does not match its SHA-256"),
        ("empty", "damaged"),
        ("text", "damaged"),
        ("pickle", "damaged"),
        ("foreign", "must be of the format 'caunet-weights-2', got None"),
        ("shape", r"decoder.0.weight must be float \(100, 4\), got float \(3, 3\)"),
        ("kind", r"decoder.0.bias must be float \(100,\), got int64 \(100,\)"),
        ("size", r"must be float \(100, 1000000000000\), got float \(100, 4\)"),
        ("spec", "unknown fields: color"),
        ("unit", "relation must be one of .*; got 'mine'; if it names units"),
        ("sign", "weights of relation must not be negative, got -0"),
        ("nan", r"weights must be finite, got NaN or infinity in decoder\.0\.bias"),
        ("inf", r"weights must be finite"),
        ("earlier", "carries no checksum; convert it with `caunet weights upgrade"),
        ("missing", "no weights at"),
        ("directory", "cannot read"),
        ("pipe", "cannot read .*: it is a named pipe, and only regular files are read"),
    ],
)
def test_bad_files_are_told_apart(how: str, message: str, model: RelationNetwork, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(model, path)
    _damage(path, how)
    with pytest.raises(CheckpointError, match=message):
        load_weights(path)


@pytest.mark.parametrize("value", [float("nan"), -1.0])
def test_what_could_not_be_loaded_is_not_saved(value: float, model: RelationNetwork, tmp_path: Path) -> None:
    with torch.no_grad():
        model.relation.u[0, 0] = value
    with pytest.raises(CheckpointError, match="weights"):
        save_weights(model, tmp_path / "w.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_equal_networks_are_equal_files(model: RelationNetwork, tmp_path: Path) -> None:
    save_weights(model, tmp_path / "a.safetensors")
    save_weights(load_weights(tmp_path / "a.safetensors"), tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert load_file(tmp_path / "a.safetensors").keys() == model.state_dict().keys()  # for any other tool


def test_a_place_that_cannot_be_written_is_named(model: RelationNetwork, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write weights"):
        save_weights(model, tmp_path / "file" / "w.safetensors")
    with pytest.raises(TypeError, match="model must be a RelationNetwork, got Linear"):
        save_weights(nn.Linear(1, 1), tmp_path / "w.safetensors")  # type: ignore[arg-type]


FIRST = {  # how the first format wrote specs: relation, what differs, what it has become
    "bln": ("bln-softmax", {"relation": "bilinear", "normalisation": "softmax", "competition": "softmin"}),
    "ctn": ("ctn", {"relation": "concatenation", "normalisation": "l2", "competition": "softmin"}),
    "can": ("can-exp", {"relation": "contrast-association", "normalisation": "l2", "relative": True}),
}


@pytest.mark.parametrize("kind", FIRST)
def test_files_of_the_first_format_are_upgraded(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, fields = FIRST[kind]
    options = {} if kind == "ctn" else {"units": 4, "relative": True} if kind == "can" else {"units": 4}
    model = create_model(name, "rotation", 5, features="standardize", seed=0, **options)
    spec = {
        key: value
        for key, value in model.spec.items()
        if key not in ("parametrization", "dimensions", "relation_options")
    }
    spec |= {**fields, "parametrisation": model.spec["parametrization"], "features": "standardise"}
    tensors = {
        key.replace("parametrizations.", "theta_").replace(".original", ""): value
        for key, value in model.state_dict().items()
    }
    path, card = tmp_path / "w.safetensors", tmp_path / "w.json"
    path.write_bytes(save(tensors, metadata={"format": "caunet-weights-1", "spec": json.dumps(spec)}))
    card.write_text(json.dumps({"name": "w", "bytes": 1, "sha256": sha256(path.read_bytes())}))
    assert main(["weights", "upgrade", str(path)]) == 0
    assert main(["weights", "upgrade", str(path)]) == 0
    assert capsys.readouterr().out == f"{path} upgraded\n{path} was up to date\n"
    again = load_weights(path)
    assert again.spec == model.spec
    assert all(torch.equal(again.state_dict()[key], value) for key, value in model.state_dict().items())
    assert json.loads(card.read_text()) == {
        "name": "w",
        "bytes": path.stat().st_size,
        "sha256": sha256(path.read_bytes()),
    }


def test_other_files_are_not_upgraded(model: RelationNetwork, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError, match="not a file of weights that can be upgraded"):
        upgrade_weights(path)
    metadata = {"format": "caunet-weights-1", "spec": json.dumps(model.spec)}
    path.write_bytes(save(model.state_dict(), metadata=metadata))
    (tmp_path / "w.json").write_text(json.dumps({"sha256": "0" * 64}))
    with pytest.raises(CheckpointError, match="is not the file of its card"):
        upgrade_weights(path)
