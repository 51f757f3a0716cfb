"""The shipped confidence: fitted as recorded, calibrated as promised, and low where nobody can answer."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from caunet.benchmark.misleading import layered, moved_by
from caunet.benchmark.pairs import draw_pair
from caunet.benchmark.unanswerable import blank, repetitive, unrelated_pair
from caunet.estimation import Estimate, Estimator
from caunet.estimation.confidence import FACTORS, confidence, doubt, factors, features
from caunet.estimation.register import register

ROOT = Path(__file__).parents[2]
RECORDED = json.loads((ROOT / "benchmarks" / "results" / "confidence.json").read_text())
SHIPPED = json.loads((ROOT / "src" / "caunet" / "weights" / "confidence.json").read_text())

EVIDENCE = {
    "score": 0.9,
    "alike": 0.9,
    "coarse": 0.9,
    "correlation": 0.99,
    "moved": 1e-4,
    "uncertainty": 1e-4,
    "inliers": 0.8,
    "overlap": 0.9,
    "windows": 0.9,
    "distortion": 0.3,
    "explained": 0.98,
    "drift": 1e-3,
    "distinct": 1.0,
}


def test_what_is_shipped_is_what_was_measured() -> None:
    assert RECORDED["fitted"] == SHIPPED
    assert {name: len(part["weights"]) for name, part in SHIPPED["factors"].items()} == {
        name: len(names) for name, names in FACTORS.items()
    }
    for name, names in FACTORS.items():
        assert all(
            w * sign > 0 for w, sign in zip(SHIPPED["factors"][name]["weights"], names.values(), strict=True)
        )


def test_the_recorded_calibration_keeps_its_promise() -> None:
    assert RECORDED["held_out"]["pairs"] >= 1500
    assert SHIPPED["pairs"] >= 1200
    assert RECORDED["held_out"]["expected_calibration_error"] < 0.03
    sure = RECORDED["held_out"]["above_0.9"]
    assert sure["wrong"] <= 0.005 * sure["answers"]
    assert RECORDED["unrelated"]["pairs"] >= 150
    assert RECORDED["unrelated"]["above_half_but_wrong"] == 0


def test_the_probability_is_the_product_of_logistic_functions() -> None:
    values, expected = features(EVIDENCE), 1.0
    for name, names in FACTORS.items():
        part = SHIPPED["factors"][name]
        scaled = [(values[f] - SHIPPED["means"][f]) / SHIPPED["scales"][f] for f in names]
        factor = 1 / (1 + np.exp(-(np.dot(part["weights"], scaled) + part["bias"])))
        assert factors(EVIDENCE)[name] == pytest.approx(factor)
        expected *= factor
    assert confidence(EVIDENCE) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "worse"),
    [
        ("score", 0.2),
        ("moved", 0.05),
        ("inliers", 0.0),
        ("correlation", 0.3),
        ("overlap", 0.2),
        ("explained", 0.4),
        ("drift", 0.02),
        ("distinct", 0.0),
        ("uncertainty", 0.02),
    ],
)
def test_worse_evidence_is_trusted_less(name: str, worse: float) -> None:
    assert confidence({**EVIDENCE, name: worse}) < confidence(EVIDENCE)


def test_photographs_that_calibrated_nothing() -> None:
    estimator = Estimator()
    sure = [
        draw_pair("test", condition, 0.1, 0, seed=5) for condition in ("clean", "photometric", "occlusion")
    ]
    unanswerable = [
        unrelated_pair("test", 0),
        blank("test", 0),
        blank("test", 3),
        repetitive(0),
        repetitive(1),
    ]
    for pair in sure:
        assert estimator(pair.a, pair.b).confidence > 0.8
    for pair in unanswerable:
        assert estimator(pair.a, pair.b).confidence < 0.5


def test_sixty_unrelated_pairs_have_no_answer() -> None:
    network = Estimator().network
    sure = []
    with torch.inference_mode():
        for index in range(60):
            pair = unrelated_pair("bench" if index % 2 else "test", index, seed=17, side=48)
            sure.append(confidence(register(pair.a, pair.b, network).evidence))
    assert max(sure) < 0.5
    assert np.mean(sure) < 0.05


def test_a_model_that_cannot_express_the_motion_is_not_trusted() -> None:
    for index, model in enumerate(("translation", "euclidean", "similarity", "affine")):
        pair = moved_by("test", "projective", index % 2, motion=0.15, seed=11 + index)
        assert Estimator(model)(pair.a, pair.b).confidence < 0.5
    pair = moved_by("test", "euclidean", 0, motion=0.1)
    assert Estimator("euclidean")(pair.a, pair.b).confidence > 0.8


def test_what_speaks_against_an_answer() -> None:
    assert doubt({}) == "unrelated"
    assert doubt({**EVIDENCE, "score": 0.1}) == "unrelated"
    assert doubt({**EVIDENCE, "distinct": 0.0}) == "ambiguous"
    assert doubt({**EVIDENCE, "drift": 0.02}) == "not this model"


def test_parallax_lowers_what_is_explained() -> None:
    estimator = Estimator()
    with torch.inference_mode():
        for index in (0, 1):
            flat, deep = moved_by("test", "translation", index), layered("test", index, parallax=0.04)
            whole, part = (
                register(pair.a, pair.b, estimator.network).evidence["explained"] for pair in (flat, deep)
            )
            assert whole > 0.95
            assert part < whole - 0.1
    pair = layered("test", 0, parallax=0.04)
    found = estimator(pair.a, pair.b)
    assert found.explained is not None
    assert Estimate.from_json(found.to_json()).explained == found.explained < 0.9
