"""The loop: what it computes, what it records, how it stops and goes on."""

import json
import math
import os
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from caunet.errors import CheckpointError, DivergenceError, TrainingError
from caunet.models import create_model, load_weights
from caunet.training import TrainConfig, checkpoint, loop, make_optimizer, train
from caunet.training.loop import Update, load_sources
from caunet.training.metrics_log import read_metrics
from tests.training.small import config, digest, run, sources


def _stop_at(monkeypatch: pytest.MonkeyPatch, step: int, action: Any) -> None:
    """Do ``action`` right after the ``step``-th update."""
    call, count = Update.__call__, 0

    def counted(self: Update, *arguments: Any) -> torch.Tensor:
        nonlocal count
        loss = call(self, *arguments)
        count += 1
        return action(loss) if count == step else loss

    monkeypatch.setattr(Update, "__call__", counted)


@pytest.mark.parametrize("schedule", ["step", "cosine"])
def test_training_is_the_paper_s_update_on_the_scheduled_batches(tmp_path: Path, schedule: str) -> None:
    """Against the loop written out: Adam from PyTorch, the multiplicative update from the paper's formula."""
    settings = config(updates=25, dtype="float64", schedule=schedule, decay_every=10, checkpoint_every=0)
    result = train(settings, tmp_path / "run", progress=False, sources=sources)
    assert result.finished
    trained = load_weights(tmp_path / "run" / "weights.safetensors").state_dict()

    generator = torch.Generator().manual_seed(0)
    model = create_model("can", "rotation", generator=generator, units=12).double()
    nonnegative = list(model.relation.parameters())
    adam = torch.optim.Adam(model.decoder.parameters(), lr=0.005)
    source, _ = sources(settings)
    for step in range(25):
        factor = 0.95 ** (step // 10) if schedule == "step" else np.cos(np.pi / 2 * step / 25) ** 2
        adam.param_groups[0]["lr"] = 0.005 * factor
        x, y, z = source.batch(*source.schedule(step, 20))
        model.zero_grad()
        ((model(x, y) - z) ** 2).mean().backward()
        adam.step()
        with torch.no_grad():
            for weight in nonnegative:
                assert weight.grad is not None
                up, down = ((weight.grad.abs() + s * weight.grad) / 2 + 1e-20 for s in (1, -1))
                weight *= (down / up) ** (0.005 * factor)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(trained[name], value, rtol=1e-8, atol=1e-10)


def test_a_run_leaves_its_settings_metrics_weights_and_result(tmp_path: Path) -> None:
    result = run(tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert stored == result.result
    fields = [
        "protocol",
        "task",
        "model",
        "seed",
        "updates",
        "parameter_error",
        "transformation_error",
        "corner_error",
        "seconds",
        "commit",
    ]
    assert set(fields) <= set(stored)
    assert stored["count"] == 100
    assert TrainConfig.from_json(json.loads((tmp_path / "run" / "config.json").read_text())) == config()
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines if "loss" in line] == [10, 20, 30, 40, 50, 60]
    assert [line["step"] for line in lines if "test" in line] == [30, 60]
    assert [line["rates"][0] for line in lines if "loss" in line] == pytest.approx(
        [0.005] * 2 + [0.005 * 0.95] * 2 + [0.005 * 0.95**2] * 2
    )


def test_seed_and_nothing_else_decides(tmp_path: Path) -> None:
    torch.manual_seed(1)
    run(tmp_path / "a")
    torch.manual_seed(2)
    run(tmp_path / "b")
    run(tmp_path / "c", seed=1)
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")


def test_relative_units_do_not_drift_and_resume_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"units": 12, "contrast": 1.0, "relative": True, "temperature": 0.3, "learn_temperature": 4.0}
    settings: dict[str, Any] = {
        "model_options": options,
        "rule": "multiplicative-adam",
        "rule_options": {"mix": 0.04},
        "rate_multiplicative": 0.05,
    }

    def masses(folder: str) -> torch.Tensor:
        relation = load_weights(tmp_path / folder / "weights.safetensors").relation
        return (relation.u.sum(1) * relation.v.sum(1)).view(-1, 4).sum(1).detach()

    run(tmp_path / "drifting", **settings)
    monkeypatch.setattr(loop, "_RESCALE_EVERY", 12)
    run(tmp_path / "whole", **settings)
    torch.testing.assert_close(masses("whole"), torch.full((12,), 121.0))  # 60 updates are five times twelve
    assert (masses("drifting") / 121 - 1).abs().max() > 0.1
    run(tmp_path / "parts", **settings, updates=31)
    assert run(tmp_path / "parts", True, **settings).finished
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")


@pytest.mark.parametrize("pairs", ["fixed", "fresh"])
@pytest.mark.parametrize("model", ["can", "ctn", "bln"])
def test_interrupted_and_resumed_is_uninterrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, pairs: str
) -> None:
    options = {"hidden": [20, 10]} if model == "ctn" else {"units": 12}
    settings = {"model": model, "model_options": options, "pairs": pairs}
    run(tmp_path / "whole", **settings)

    def ctrl_c(loss: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        return loss

    with monkeypatch.context() as patch:
        _stop_at(patch, 23, ctrl_c)
        stopped = run(tmp_path / "parts", **settings)
    assert (stopped.finished, stopped.step) == (False, 23)
    resumed = run(tmp_path / "parts", True, **settings)
    assert resumed.finished
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")
    whole, parts = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "parts"))
    assert [{k: v for k, v in line.items() if k != "seconds"} for line in parts] == [
        {k: v for k, v in line.items() if k != "seconds"} for line in whole
    ]


def test_a_directory_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    run(tmp_path / "run", False)
    with pytest.raises(TrainingError, match="already has a run in it: add --resume"):
        run(tmp_path / "run", False)


def test_a_finished_run_can_be_made_longer(tmp_path: Path) -> None:
    run(tmp_path / "whole", updates=60)
    run(tmp_path / "parts", updates=40)
    run(tmp_path / "parts", True, updates=60)
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")


def test_resume_refuses_what_it_cannot_continue(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint to resume"):
        run(tmp_path / "none", True)
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="empty has no checkpoint to resume"):
        run(tmp_path / "empty", True)
    run(tmp_path / "run")
    with pytest.raises(CheckpointError, match="belongs to another run: its seed is 0, asked for is 5"):
        run(tmp_path / "run", True, seed=5)
    with pytest.raises(CheckpointError, match="has made 60 updates already, asked for are 50"):
        run(tmp_path / "run", True, updates=50)


def test_a_damaged_checkpoint_is_left_only_on_request(tmp_path: Path) -> None:
    run(tmp_path / "run")
    newest, previous = checkpoint.find(tmp_path / "run" / "checkpoints")
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.raises(
        CheckpointError, match=rf"{newest.name} is damaged.*{previous.name}.*--resume-previous"
    ):
        run(tmp_path / "run", True)
    whole = digest(tmp_path / "run")
    assert run(tmp_path / "run", "previous").finished
    assert digest(tmp_path / "run") == whole


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stop_at(monkeypatch, 35, lambda loss: loss * float("nan"))
    with pytest.raises(DivergenceError, match=r"update 3\d: the loss is nan .*step-000000030") as stopped:
        run(tmp_path / "run")
    assert stopped.value.update == 36
    assert stopped.value.loss is not None
    assert math.isnan(stopped.value.loss)


def test_a_gradient_that_is_not_finite_names_its_parameter(tmp_path: Path) -> None:
    def poisoned(settings: TrainConfig) -> Any:
        training, testing = sources(settings)
        stream = training.stream

        def poison(*arguments: Any, **options: Any) -> Any:
            for step, pairs in enumerate(stream(*arguments, **options)):
                yield pairs._replace(z=pairs.z * float("inf")) if step == 25 else pairs

        training.stream = poison  # type: ignore[method-assign]
        return training, testing

    with pytest.raises(TrainingError, match=r"stopped at update 26: .*(relation|decoder)\..*step-000000020"):
        train(config(), tmp_path / "run", progress=False, sources=poisoned)


def test_a_diverging_loss_stops_the_run(tmp_path: Path) -> None:
    settings = {"model": "ctn", "model_options": {"hidden": [20, 10]}, "rate": 30.0, "log_every": 1}
    with pytest.raises(DivergenceError, match="diverged"):
        run(tmp_path / "run", **settings)


def test_a_full_disk_ends_the_run_with_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on the size of files, set after the second checkpoint: the system refuses to write the third."""
    save, count = checkpoint.save, 0

    def limited(*arguments: Any) -> Path:
        nonlocal count
        count += 1
        if count < 3:
            return save(*arguments)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        try:
            return save(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    monkeypatch.setattr(checkpoint, "save", limited)
    with pytest.raises(
        TrainingError, match=r"cannot save .*File too large; .*last good checkpoint is .*step-000000020"
    ):
        run(tmp_path / "run")
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-000000010.safetensors", "step-000000020.safetensors"]
    monkeypatch.undo()
    run(tmp_path / "whole")
    run(tmp_path / "run", True)
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")


def test_a_directory_that_cannot_be_written_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TrainingError, match="cannot begin a run in"):
        run(tmp_path / "file" / "run")


def test_rules_reach_the_weights() -> None:
    model = create_model("can", "rotation", units=4)
    rules = {
        "auto": "multiplicative",
        "projection": "projection",
        "multiplicative-adam": "multiplicative-adam",
    }
    for rule, expected in rules.items():
        groups = make_optimizer(model, config(rule=rule)).param_groups
        assert [group["rule"] for group in groups] == [expected, "adam"]
    groups = make_optimizer(
        model, config(adam_reset=True, rate=0.1, rate_multiplicative=0.2, epsilon=1e-9)
    ).param_groups
    assert [(group["rule"], group["lr"]) for group in groups] == [
        ("multiplicative", 0.2),
        ("adam-reset", 0.1),
    ]
    assert groups[0]["eps"] == 1e-9
    free = make_optimizer(create_model("ctn", "rotation"), config()).param_groups
    assert [group["rule"] for group in free] == ["adam"]


def test_test_pairs_do_not_depend_on_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randint(0, 256, (3, 32, 32), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    asked: list[str] = []

    def load(name: str, split: str, *, skip_bad: bool, dimensions: int) -> torch.Tensor:
        asked.append(split)
        return images

    monkeypatch.setattr(loop, "load_images", load)
    index = torch.arange(30)
    batches = [load_sources(config(seed=seed))[1].batch(0, index).z for seed in (0, 7)]
    assert torch.equal(*batches)
    assert asked == ["train", "test"] * 2


def test_tensorboard_gets_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(config(updates=30), tmp_path / "run", progress=False, tensorboard=True, sources=sources)
    events = EventAccumulator(str(tmp_path / "run")).Reload()
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    losses = [line["loss"] for line in lines if "loss" in line]
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(losses)
    assert events.Scalars("test/parameter_error")[0].step == 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "batch must be a whole number of at least 1, got 0"),
        ({"updates": 2.5}, "updates must be a whole number"),
        ({"rate": -1.0}, "rate must be a positive number, got -1.0"),
        ({"decay": 1.5}, r"decay must be a number in \(0, 1\], got 1.5"),
        ({"schedule": "linear"}, "schedule must be 'step' or 'cosine', got 'linear'"),
        ({"rule": "sgd"}, "rule must be 'auto', "),
        ({"checkpoint_every": -1}, "checkpoint_every must be a whole number of at least 0"),
    ],
)
def test_wrong_settings_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**change)


def test_unknown_fields_of_a_stored_config_are_named() -> None:
    with pytest.raises(ValueError, match="unknown fields: colour"):
        TrainConfig.from_json({"colour": 1})
