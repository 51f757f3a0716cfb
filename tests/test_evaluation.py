"""Evaluation: a stream of pairs in, the errors of the whole out; and its command line."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from caunet import tasks
from caunet.cli.evaluate import Evaluate
from caunet.cli.models import Models
from caunet.data import PairSource
from caunet.errors import CheckpointError
from caunet.evaluation import PredictionCounts, error_sums, evaluate
from caunet.metrics import ParameterSums
from caunet.models import create_model, save_weights
from tests.oracles import metrics as oracle


def _source(task: str = "rotation", protocol: str = "text", images: int = 12) -> PairSource:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (images, 32, 32), generator=generator, dtype=torch.uint8)
    return PairSource(pixels, task, protocol)


def test_errors_equal_a_plain_loop_over_samples() -> None:
    source = _source("projective")
    model = create_model("can", "projective", seed=0)
    x, y, z = source.batch(0, torch.arange(len(source)))
    with torch.no_grad():
        z_hat = model(x, y)
    H_hat, H = (source.task.homography(t.double()).tolist() for t in (z_hat, z))
    expected = sum(map(oracle.parameter, z_hat.double().tolist(), z.double().tolist())) / len(source)
    found = evaluate(model, source)
    assert found["parameter_error"] == pytest.approx(expected, rel=1e-9)
    assert found["transformation_error"] == pytest.approx(
        sum(map(oracle.transformation, H_hat, H)) / len(source), rel=1e-9
    )
    corners = [oracle.corner(a, b, 11) for a, b in zip(H_hat, H, strict=True)]
    assert found["corner_error"]["mean"] == pytest.approx(sum(corners) / len(source), rel=1e-9)
    assert (found["count"], found["task"], found["protocol"]) == (120, "projective", "text")


def _first_pixel(x: Tensor, y: Tensor) -> Tensor:
    """A predictor that does not depend on the batch, to the last bit."""
    return 90 * x[:, 0, :1]


def test_the_batch_and_the_shards_do_not_matter() -> None:
    source = _source()
    whole = evaluate(_first_pixel, source)
    assert evaluate(_first_pixel, source, batch=7) == whole
    shards = [
        error_sums(_first_pixel, source, start=a, stop=b) for a, b in ((0, 50), (50, 51), (51, 51), (51, 120))
    ]
    merged = shards[0]
    for shard in shards[1:]:
        merged.merge(shard)
    assert merged.compute() == error_sums(_first_pixel, source, batch=13).compute()


def test_each_parameter_has_its_error_and_r2() -> None:
    source = _source("affine")
    model = create_model("can", "affine", seed=0, units=8)
    found = evaluate(model, source)
    x, y, z = source.batch(0, torch.arange(len(source)))
    with torch.no_grad():
        z_hat = model(x, y).double().numpy()
    truth = z.double().numpy()
    error, variance = ((z_hat - truth) ** 2).mean(0), truth.var(0)
    each = found["per_parameter"]
    assert list(each) == list(source.names)
    np.testing.assert_allclose([one["error"] for one in each.values()], error, rtol=1e-9)
    np.testing.assert_allclose([one["error_of_mean"] for one in each.values()], variance, rtol=1e-9)
    np.testing.assert_allclose([one["r2"] for one in each.values()], 1 - error / variance, rtol=1e-7)
    assert found["parameter_error"] == pytest.approx(error.mean(), rel=1e-9)
    assert found["parameter_error_of_mean"] == pytest.approx(variance.mean(), rel=1e-9)
    always = evaluate(lambda x, y: z.mean(0).expand(len(x), -1), source)
    assert always["parameter_error"] == pytest.approx(found["parameter_error_of_mean"], rel=1e-5)
    assert [one["r2"] for one in always["per_parameter"].values()] == pytest.approx(
        [0.0] * len(each), abs=1e-5
    )


def test_sums_of_parameters_merge_exactly() -> None:
    generator = torch.Generator().manual_seed(0)
    z_hat, z = (torch.randn(300, 3, generator=generator) * 10.0 ** torch.tensor([-8, 0, 8]) for _ in "ab")
    whole = ParameterSums(3)
    whole.update(z_hat, z)
    merged = ParameterSums(3)
    for part in torch.randperm(300, generator=generator).split(77):
        shard = ParameterSums(3)
        shard.update(z_hat[part], z[part])
        merged.merge(shard)
    names = ["a", "b", "c"]
    assert merged.compute(names) == whole.compute(names)
    merged.update(torch.tensor([[0.0, math.inf, 0.0]]), torch.zeros(1, 3))
    assert [one["r2"] is None for one in merged.compute(names).values()] == [False, True, False]
    still = ParameterSums(1)
    with pytest.raises(ValueError, match="no samples"):
        still.compute(["a"])
    still.update(torch.ones(2, 1), torch.zeros(2, 1))
    assert still.compute(["a"]) == {"a": {"error": 1.0, "error_of_mean": 0.0, "r2": None}}
    with pytest.raises(ValueError, match=r"must be \(B, 1\), got \(2, 2\)"):
        still.update(torch.ones(2, 2), torch.zeros(2, 1))


def test_limit_takes_the_first_pairs() -> None:
    source = _source()
    first = error_sums(_first_pixel, source, stop=30).compute()
    found = evaluate(_first_pixel, source, limit=30)
    assert {name: found[name] for name in first} == first
    assert evaluate(_first_pixel, source, limit=10**6)["count"] == len(source)


def test_the_truth_has_no_error_in_any_order_of_z() -> None:
    source = _source("translation", "release")
    answers = {}
    x, _, z = source.batch(0, torch.arange(len(source)))
    for patch, answer in zip(x, z, strict=True):
        answers[patch.numpy().tobytes()] = answer
    found = evaluate(lambda x, y: torch.stack([answers[p.numpy().tobytes()] for p in x]), source)
    assert found["parameter_error"] < 20  # a patch may come twice
    shifted = evaluate(lambda x, y: torch.tensor([[3.0, 4.0]]).expand(len(x), 2), _Still())
    assert shifted["corner_error"]["mean"] == pytest.approx(5.0)


class _Still:
    """Pairs that do not move."""

    task, protocol, patch = tasks.get("translation"), "text", 11
    rows_first = False

    def __len__(self) -> int:
        return 4

    def batch(self, epoch: int, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        patches = torch.zeros(len(index), 11, 11)
        return patches, patches, torch.zeros(len(index), 2)

    def homography(self, z: Tensor) -> Tensor:
        return self.task.homography(z)


class _Noisy(nn.Module):
    """A network that behaves differently in training."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        assert x.dtype == torch.float64
        assert not torch.is_grad_enabled()
        assert not self.training
        return self.weight * x.flatten(1)[:, :1]


def test_networks_are_evaluated_at_rest_and_in_their_own_precision() -> None:
    model = _Noisy().train()
    evaluate(model, _source(images=2))
    assert model.training


def test_pairs_made_while_evaluating_can_be_trained_on() -> None:
    source = _source(images=2)
    evaluate(_first_pixel, source)
    x, y, z = source.batch(0, torch.arange(4))
    model = create_model("can", "rotation", seed=0, units=4)
    (model(x, y) - z).square().mean().backward()


def test_predictions_are_counted_against_truths() -> None:
    counts = PredictionCounts(tasks.get("translation"), bins=10)
    z = torch.tensor([[-5.0, 0.5], [4.9, 4.9], [0.0, 0.0]])
    z_hat = torch.tensor([[9.0, 0.5], [4.9, -9.0], [math.nan, 0.0]])
    counts.update(z_hat, z)
    expected = torch.zeros(2, 10, 10, dtype=torch.int64)
    expected[0, 0, 9] = expected[0, 9, 9] = expected[1, 5, 5] = expected[1, 9, 0] = 1
    assert torch.equal(counts.counts, expected)
    found = evaluate(_first_pixel, _source(), predictions=True)["predictions"]
    assert sum(map(sum, found["counts"][0])) == 120
    swapped = evaluate(lambda x, y: x[:, 0, :2], _source("translation", "release"), predictions=True)
    assert swapped["predictions"]["names"] == ["shift_y", "shift_x"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"batch": 0}, "batch must be"), ({"limit": 0}, "limit must be")],
)
def test_bad_arguments_are_named(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(_first_pixel, _source(), **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="start and stop must be"):
        error_sums(_first_pixel, _source(), start=5, stop=3)
    with pytest.raises(ValueError, match=r"must give z of shape \(120, 2\), got \(120, 1\)"):
        evaluate(_first_pixel, _source("translation"))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of noise, to evaluate on."""
    from PIL import Image

    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(10):
        pixels = torch.randint(
            0, 256, (40, 40), generator=torch.Generator().manual_seed(i), dtype=torch.uint8
        )
        Image.fromarray(pixels.numpy()).save(folder / f"{i}.png")
    return folder


def _run(folder: Path, **config: object) -> Path:
    run = folder / "run"
    save_weights(create_model("can", "rotation", seed=0, units=8), run / "weights.safetensors")
    (run / "config.json").write_text(json.dumps({"task": "rotation", **config}))
    return run


def test_the_command_measures_a_run_and_its_baselines(
    tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _run(tmp_path, data=str(images), protocol="text")
    figure = tmp_path / "errors.svg"
    assert Evaluate(run, baselines=True, json=True, figure=figure, pairs=50).run() == 0
    found = json.loads(capsys.readouterr().out)["results"]
    assert {"can", "mean", "exhaustive search"} <= set(found)
    assert found["exhaustive search"]["parameter_error"] < found["mean"]["parameter_error"]
    assert "<svg" in figure.read_text()
    assert Evaluate(run / "weights.safetensors", data=str(images), protocol="release", pairs=20).run() == 0
    shown = capsys.readouterr().out
    assert "rotation (release protocol), 20 pairs" in shown
    assert "R²" in shown
    assert "always the mean" in shown


def test_the_command_s_errors_are_kind(tmp_path: Path, images: Path) -> None:
    run = _run(tmp_path, data=str(images))
    with pytest.raises(ValueError, match="task translation has 2 parameters, this network infers 1"):
        Evaluate(run, task="translation").run()
    with pytest.raises(ValueError, match="did you mean 'rotation'"):
        Evaluate(run, task="rotatoin").run()
    with pytest.raises(ValueError, match="figure must be a file name ending in"):
        Evaluate(run, figure=tmp_path / "a.doc", pairs=5).run()
    (run / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot read"):
        Evaluate(run).run()
    (run / "weights.safetensors").unlink()
    with pytest.raises(CheckpointError, match="not finished; continue it with --resume"):
        Evaluate(run).run()
    with pytest.raises(CheckpointError, match="no run directory"):
        Evaluate(images).run()
    with pytest.raises(CheckpointError, match="there is no file, run or shipped network"):
        Evaluate(tmp_path / "nothing").run()


def test_the_list_of_networks_says_the_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert Models().run() == 0
    shown = capsys.readouterr().out
    assert "692,205" in shown
    assert "essentially equal in size" in shown
    assert "331,000" in shown
    assert Models(task="affine", json=True).run() == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["can"]["parameters"] == create_model("can", "affine").parameter_count()


def test_refined_answers_stand_beside_the_networks(capsys: pytest.CaptureFixture[str]) -> None:
    assert Evaluate("can-projective", pairs=100, refine=True, json=True).run() == 0
    results = json.loads(capsys.readouterr().out)["results"]
    network, refined = results["can"], results["can, refined"]
    assert refined["corner_error"]["median"] < 0.1 * network["corner_error"]["median"]
    assert network["per_parameter"]["p1"]["r2"] < 0.1
    assert refined["per_parameter"]["p1"]["r2"] > 0.5


def test_what_cannot_be_refined_is_refused() -> None:
    with pytest.raises(ValueError, match="--refine must be used with the protocol text"):
        Evaluate("can-rotation", protocol="release", pairs=10, refine=True).run()
