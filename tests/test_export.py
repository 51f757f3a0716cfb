"""Networks in ONNX: ONNX Runtime answers as torch does, for any number of pairs."""

import json
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from caunet import export, tasks
from caunet.cli import main
from caunet.export import OPSET, ExportError, check_onnx, export_onnx, read_metadata
from caunet.models import ModelSpec, create_model, save_weights

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

NETWORKS = {  # name: overrides
    "ctn": {},
    "bln": {},
    "can": {"response_scale": 30.0, "contrast": 0.1, "target_scale": True},
    "can-wta": {},
    "can-full": {"units": 20},
}


def decided(name, **overrides):
    """A network whose units and answers differ from pair to pair, as those of a trained one do."""
    model = create_model(name, "rotation", seed=3, **overrides).eval()
    with torch.no_grad():
        for weight in model.relation.parameters():
            weight.mul_(torch.rand(weight.shape, generator=torch.Generator().manual_seed(4)) ** 8 * 30)
        for weight in model.decoder.parameters():
            weight.mul_(3)
    return model


def pairs(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.rand(count, 11, 11, generator=generator) - 0.5 for _ in range(2))
    y[::3] = x[::3] + 0.01 * y[::3]  # nearly the same: the squares and the product all but cancel
    return x, y


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Each network and its file; made once, for translating takes seconds."""
    folder = tmp_path_factory.mktemp("onnx")
    made = {}

    def make(name):
        if name not in made:
            model = decided(name, **NETWORKS[name])
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                export_onnx(model, folder / f"{name}.onnx")
            made[name] = model, folder / f"{name}.onnx"
        return made[name]

    return make


def run(path, x, y):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x.numpy(), "y": y.numpy()})[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_runtime_answers_as_torch_does(name, exported):
    model, path = exported(name)
    for count in (1, 7, 100):
        x, y = pairs(count, seed=count)
        with torch.no_grad():
            expected = model(x, y).numpy()
        np.testing.assert_allclose(run(path, x, y), expected, rtol=1e-3, atol=1e-5)
    assert expected.std() > 0.01, "answers that are all the same prove nothing"


@pytest.mark.parametrize("name", NETWORKS)
def test_the_file_is_whole_and_says_what_it_is(name, exported):
    model, path = exported(name)
    assert [p for p in path.parent.iterdir() if p.name.startswith(f"{name}.onnx.")] == []
    proto = onnx.load(str(path), load_external_data=False)
    assert not any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in proto.graph.initializer)
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", OPSET)]
    for value, shape in zip(
        [*proto.graph.input, *proto.graph.output], ([11, 11], [11, 11], [1]), strict=True
    ):
        first, *rest = value.type.tensor_type.shape.dim
        assert first.dim_param
        assert [d.dim_value for d in rest] == shape
    about = read_metadata(path)
    assert ModelSpec.from_json(about["spec"]) == model.model_spec
    assert (about["task"], about["names"]) == ("rotation", list(tasks.get("rotation").names))
    assert "bytes / 255 - 0.5" in proto.doc_string


def test_a_common_offset_changes_nothing_after_export_either(exported):
    # The centering must survive: without it squares of 1000 would swallow everything.
    _, path = exported("can-wta")
    x, y = pairs(50)
    np.testing.assert_allclose(run(path, x + 100, y + 100), run(path, x, y), rtol=1e-2, atol=1e-3)


def test_volumes_and_reparametrized_units_are_exported(tmp_path):
    options = {"units": 4, "hidden": (5,), "relative": True, "response_center": True}
    model = create_model("can-exp", "rotation", 3, dimensions=3, seed=0, **options)
    export_onnx(model, tmp_path / "volumes.onnx")
    x, y = torch.rand(2, 5, 3, 3, 3, generator=torch.Generator().manual_seed(0)) - 0.5
    with torch.no_grad():
        expected = model(x, y).numpy()
    np.testing.assert_allclose(run(tmp_path / "volumes.onnx", x, y), expected, rtol=1e-3, atol=1e-5)
    assert "patches of 3 x 3 x 3 pixels" in onnx.load(str(tmp_path / "volumes.onnx")).doc_string


def test_identical_patches_do_not_mismatch(exported):
    model, path = exported("can")
    x, _ = pairs(20)
    with torch.no_grad():
        np.testing.assert_allclose(run(path, x, x), model(x, x).numpy(), rtol=1e-3, atol=1e-5)


def test_the_model_is_left_as_it_was(exported, tmp_path, monkeypatch):
    _, path = exported("ctn")
    model = create_model("ctn", "rotation", seed=0, dtype=torch.float64).train()
    monkeypatch.setattr(export, "_translate", lambda network: onnx.load(str(path)))
    with pytest.raises(ExportError, match="the exported network and the model differ"):
        export_onnx(model, tmp_path / "a.onnx")
    assert model.training
    assert next(model.parameters()).dtype == torch.float64
    assert list(tmp_path.iterdir()) == [], "a file with other answers is not put in place"
    with pytest.raises(ExportError, match="by up to"):
        check_onnx(model, path)


def test_wrong_arguments(tmp_path):
    model = create_model("can", "rotation", seed=0)
    with pytest.raises(TypeError, match="model must be a RelationNetwork, got Linear"):
        export_onnx(nn.Linear(2, 2), tmp_path / "a.onnx")
    with pytest.raises(ValueError, match=r"path must be a file name ending in \.onnx, got 'a\.pt'"):
        export_onnx(model, "a.pt")


class Stubborn(nn.Module):
    """A custom f that no exporter can follow."""

    def forward(self, x):
        if x.sum().item() > 1e9:
            x = x + 1
        return x


def test_what_cannot_be_translated_is_one_sentence(tmp_path):
    model = create_model("ctn", "rotation", features=Stubborn(), seed=0)
    with pytest.raises(ExportError, match="torch cannot translate this network to ONNX: ") as caught:
        export_onnx(model, tmp_path / "a.onnx")
    assert "\n" not in str(caught.value)


def test_a_missing_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    save_weights(create_model("ctn", "rotation", seed=0), tmp_path / "w.safetensors")
    assert main(["export", "--weights", str(tmp_path / "w.safetensors"), str(tmp_path / "a.onnx")]) == 2
    assert capsys.readouterr().err == "caunet: Exporting needs onnxscript: pip install 'caunet[export]'\n"
    assert not (tmp_path / "a.onnx").exists()


def test_other_files_have_no_metadata(tmp_path):
    (tmp_path / "text.onnx").write_text("hello")
    for name, message in {
        "text.onnx": "not a network that caunet exported",
        "none.onnx": "no network at",
    }.items():
        with pytest.raises(ExportError, match=message):
            read_metadata(tmp_path / name)


@pytest.fixture
def fast(exported, monkeypatch):
    """The command with a translation made before."""
    model, path = exported("ctn")
    monkeypatch.setattr(export, "_translate", lambda network: onnx.load(str(path)))
    return model


def test_the_command_exports_files_and_runs(fast, tmp_path, capsys):
    save_weights(fast, tmp_path / "weights.safetensors")
    for weights in (tmp_path / "weights.safetensors", tmp_path):
        out = tmp_path / "new" / "out.onnx"
        assert (
            main(["export", "--weights", str(weights), "--model", "ctn", "--task", "rotation", str(out)]) == 0
        )
        assert "ctn for rotation, checked on 100 pairs" in capsys.readouterr().out
        assert json.loads(json.dumps(read_metadata(out)["spec"])) == fast.spec


def test_the_command_says_what_is_wrong(fast, tmp_path, capsys):
    weights, out = tmp_path / "weights.safetensors", str(tmp_path / "out.onnx")
    save_weights(fast, weights)
    for words, message in {
        ("--weights", str(weights), "--task", "scaling"): "--task scaling: .* holds ctn for rotation",
        ("--weights", str(weights), "--model", "can"): "--model can: .* holds ctn for rotation",
        ("--weights", str(tmp_path / "none.safetensors")): "there is no file, run or shipped network",
        ("--model", "can"): "the network must be named: --model can --task rotation, or --weights FILE",
    }.items():
        assert main(["export", *words, out]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert pytest.raises(AssertionError, match=message).matches(AssertionError(said))
