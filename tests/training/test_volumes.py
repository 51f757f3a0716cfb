"""Training on volumes, end to end: from the command line, to the same bits twice, and better than chance."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from caunet.cli import main
from caunet.cli.parser import parse
from caunet.data import PairSource, shapes3
from caunet.data.tiles import cut
from caunet.models import create_model
from caunet.models.dense import DenseRelations
from caunet.training import TrainConfig, train
from tests.training.small import digest

WORDS = [
    "--task",
    "translation3",
    "--profile",
    "best",
    "--compile",
    "never",
    "--updates",
    "20",
    "--batch",
    "20",
]


@pytest.fixture
def few_volumes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes3, "TRAIN", 3)
    monkeypatch.setattr(shapes3, "TEST", 1)


def sources(config: TrainConfig) -> tuple[PairSource, PairSource]:
    tiles = [torch.from_numpy(cut(shapes3.make(i), tile=20, stride=11, scales=(1,))) for i in range(4)]
    options = {"patch": config.patch, "pairs": config.pairs, "seed": config.seed}
    return (
        PairSource(torch.cat(tiles[:3]), config.task, **options),
        PairSource(tiles[3], config.task, patch=config.patch, split="test"),
    )


def test_the_command_line_trains_and_evaluates_on_shapes(
    few_volumes: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", *WORDS, "--model-options", '{"units": 4}', "--out", str(out)]) == 0
    config = json.loads((out / "config.json").read_text())
    assert (config["data"], config["patch"], config["pairs"]) == ("shapes3", 7, "fresh")
    assert config["model_options"] == {"units": 4}
    capsys.readouterr()
    assert main(["evaluate", str(out), "--baselines", "--json", "--pairs", "200"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"] == "shapes3"
    assert set(found["results"]) == {"can", "mean", "exhaustive search"}
    search, mean = (found["results"][name]["parameter_error"] for name in ("exhaustive search", "mean"))
    assert search < 0.5 * mean
    assert mean == pytest.approx(3.0, rel=0.3)
    # A file of weights alone says which volumes it is for.
    assert main(["evaluate", str(out / "weights.safetensors"), "--json", "--pairs", "50"]) == 0
    assert json.loads(capsys.readouterr().out)["data"] == "shapes3"


def test_statistics_say_of_which_volumes(few_volumes: None, tmp_path: Path) -> None:
    words = [
        "--tasks",
        "scaling3",
        "--protocols",
        "text",
        "--pairs",
        "300",
        "--out",
        str(tmp_path / "s.json"),
    ]
    assert main(["data", "stats", *words]) == 0
    found = json.loads((tmp_path / "s.json").read_text())
    assert found["data"] == "shapes3"
    assert found["rows"][0]["z"]["expected_mean"] == [1.25] * 3


def test_defaults_follow_the_task() -> None:
    chosen = parse(["train", "--task", "rotation3", "--patch", "5"]).config  # type: ignore[attr-defined]
    assert (chosen.data, chosen.patch) == ("shapes3", 5)
    plain = parse(["train", "--task", "rotation"]).config  # type: ignore[attr-defined]
    assert (plain.data, plain.patch) == ("photos", 11)
    assert parse(["train", "--profile", "best", "--task", "rigid3"]).config.loss == "range"  # type: ignore[attr-defined]


def test_images_for_volumes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *WORDS, "--data", "photos", "--out", str(tmp_path / "run")]) == 2
    assert "images must be one of shapes3" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_it_learns_and_learns_the_same_twice(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    config = TrainConfig(
        task="translation3",
        patch=5,
        data="shapes3",
        model="can",
        model_options={
            "units": 30,
            "contrast": 1.0,
            "target_scale": True,
            "relative": True,
            "temperature": 0.1,
        },
        pairs="fresh",
        schedule="cosine",
        updates=300,
        rule="multiplicative-adam",
        rule_options={"mix": 0.02},
        rate_multiplicative=0.05,
        compile="never",
        checkpoint_every=0,
    )
    results = [train(config, tmp_path / n, progress=False, sources=sources).result for n in ("a", "b")]
    assert results[0] is not None
    assert results[0]["parameter_error"] < 0.75 * results[0]["parameter_error_of_mean"]
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_a_network_of_volumes_slides_over_a_volume() -> None:
    model = create_model("can", "rotation3", units=6, patch=5, seed=0)
    a, b = (torch.from_numpy(shapes3.make(i, side=16).astype(np.float32)) / 255 - 0.5 for i in (0, 1))
    with torch.no_grad():
        z = DenseRelations(model)(a, b, stride=3)
        one = model(a[None, 3:8, 6:11, :5], b[None, 3:8, 6:11, :5])[0]
    assert z.shape == (3, 4, 4, 4)
    torch.testing.assert_close(z[:, 1, 2, 0], one, atol=1e-4, rtol=1e-4)


def test_the_page_on_space_runs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "space.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(example, "space.md", "exec"), {})
