"""Verdicts follow from the figures, and an offset is measured as what it is."""

from pathlib import Path
from typing import Any

import torch

from caunet.models import create_model, save_weights
from caunet.reproduction.claims import claims_markdown, control_markdown, judge, measure_offset
from tests.reproduction.test_tables import result


def claims(**errors: float | None) -> list[dict[str, Any]]:
    """The same errors on both tasks; keys are labels with underscores."""
    made = []
    for task in ("translation", "rotation"):
        for label, error in errors.items():
            made.append(result(task, label.replace("_", "-"), error, recipe="claims"))
    return made


def verdict_on(word: str, results: list[dict[str, Any]]) -> str:
    (found,) = [finding for finding in judge(results) if word in finding.sentence]
    return found.verdict


def test_ratio_decides() -> None:
    assert verdict_on("Competition", claims(can=1.0, can_no_competition=2.0)) == "holds"
    assert verdict_on("Competition", claims(can=1.0, can_no_competition=1.05)) == "does not hold"
    mixed = claims(can=1.0, can_no_competition=2.0)
    mixed[-1]["parameter_error"] = 0.5
    assert verdict_on("Competition", mixed) == "holds on translation only"


def test_divergence_confirms_what_is_said_of_projection() -> None:
    results = claims(can=1.0, can_projection=None)
    for value in results:
        value["diverged_at"] = 1200
    assert verdict_on("Projection", results) == "holds"
    assert "1.00 against diverged at update 1200" in claims_markdown(results)


def test_missing_runs_are_not_judged() -> None:
    assert verdict_on("l2", claims(bln=1.0)) == "not run"
    assert judge([result("rotation", "can", 1.0)]) == []


def test_offset_holds_when_only_caus_ignore_it() -> None:
    results = claims(ctn=1.0, bln=1.0, can=1.0)
    for value in results:
        value["offset"] = {"relation_change": 1e-6 if value["model"] == "can" else 0.4}
    assert verdict_on("offset", results) == "holds"
    for value in results:
        value["offset"] = {"relation_change": 0.4}
    assert verdict_on("offset", results) == "does not hold"


def test_offset_is_measured_on_networks(tmp_path: Path, pictures: Path) -> None:
    change = {}
    for name in ("can", "bln"):
        save_weights(create_model(name, "rotation", seed=0), tmp_path / "weights.safetensors")
        change[name] = measure_offset(tmp_path, "rotation", "text", str(pictures))["relation_change"]
    assert change["can"] < 1e-4 < 1e-2 < change["bln"]
    assert torch.isfinite(torch.tensor(list(change.values()))).all()


def test_control_is_held_against_the_run_cut_short() -> None:
    short = result("rotation", "can", 1.93)
    long = result("rotation", "can", 1.92, recipe="control") | {"updates": 200_000}
    line = control_markdown([short, long])
    assert "1.92 at 200,000 updates, against 1.93 at 60,000" in line
    assert control_markdown([short]) == ""
