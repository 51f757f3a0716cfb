"""The paper's claims, each tested by two runs that differ in nothing else; the verdict is computed.

A claim compares a variant with the paper's network on the same task, pairs and updates. ``ratio`` is the
variant's parameter error over the network's; the claim holds on a task when the ratio reaches ``factor``.

>>> verdict({"translation": True, "rotation": True}), verdict({"translation": True, "rotation": False})
('holds', 'holds on translation only')
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caunet.reproduction.baseline_results import matching
from caunet.reproduction.recipes import CLAIM_TASKS, MODELS
from caunet.reproduction.tables import Result, caption, show, show_ratio
from caunet.tables import Table

__all__ = [
    "CLAIMS",
    "Claim",
    "Finding",
    "claims_markdown",
    "control_markdown",
    "judge",
    "measure_offset",
    "verdict",
]

# A common offset of both patches, as a share of the whole range of gray: about 51 of 255 levels.
OFFSET = 0.2
# Networks compute in float32: a change of the relation units below this is rounding.
ROUNDING = 1e-3


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and the two networks that test it."""

    sentence: str
    where: str
    network: str
    variant: str
    factor: float


CLAIMS = (
    Claim("Competition significantly improves CAN.", "III-A", "can", "can-no-competition", 1.1),
    Claim("Winner-take-all discards too much information.", "III-A", "can", "can-wta", 1.1),
    Claim("Projection after each update converges slowly or diverges.", "IV", "can", "can-projection", 1.5),
    Claim("A non-negative constraint hurts bilinear units.", "VI-C", "bln", "bln-nonnegative", 1.1),
    Claim("In BLN, l2 normalization does better than softmax.", "VI-C", "bln", "bln-softmax", 1.0),
)
OFFSET_SENTENCE = "CAU outputs ignore an offset common to both images; the other units do not."


@dataclass(frozen=True)
class Finding:
    """A claim on the tasks that were run: a text and whether it held for each, and the verdict over all."""

    sentence: str
    where: str
    texts: Mapping[str, str]
    verdict: str


def verdict(held: Mapping[str, bool]) -> str:
    """One word or two over the tasks."""
    if not held:
        return "not run"
    if all(held.values()):
        return "holds" if len(held) == len(CLAIM_TASKS) else f"holds on {', '.join(held)} (the other not run)"
    if not any(held.values()):
        return "does not hold"
    return f"holds on {', '.join(task for task, yes in held.items() if yes)} only"


def judge(results: Sequence[Result]) -> list[Finding]:
    """Every claim, with its figures and verdict, from results of the recipe ``claims``."""
    chosen = [result for result in results if result["recipe"] == "claims"]
    if not chosen:
        return []
    return [*(_compare(claim, chosen) for claim in CLAIMS), _offset(chosen)]


def _compare(claim: Claim, results: Sequence[Result]) -> Finding:
    texts, held = {}, {}
    for task in CLAIM_TASKS:
        base, variant = (_of(results, task, label) for label in (claim.network, claim.variant))
        if not base or not variant:
            continue
        texts[task], held[task] = _figures(claim, base, variant)
    return Finding(claim.sentence, claim.where, texts, verdict(held))


def _figures(claim: Claim, base: Sequence[Result], variant: Sequence[Result]) -> tuple[str, bool]:
    reference = statistics.fmean(r["parameter_error"] for r in base)
    diverged = [r for r in variant if r["parameter_error"] is None]
    if diverged:
        return f"{show(reference)} against diverged at update {diverged[0].get('diverged_at')}", True
    other = statistics.fmean(r["parameter_error"] for r in variant)
    ratio = other / reference
    return f"{show(reference)} against {show(other)} ({show_ratio(ratio)})", ratio > claim.factor


def _of(results: Sequence[Result], task: str, label: str) -> list[Result]:
    return [r for r in results if r["task"] == task and r["model"] == label]


def _offset(results: Sequence[Result]) -> Finding:
    texts, held = {}, {}
    for task in CLAIM_TASKS:
        change = {
            model: statistics.fmean(r["offset"]["relation_change"] for r in found)
            for model in MODELS
            if (found := [r for r in _of(results, task, model) if "offset" in r])
        }
        if "can" in change and len(change) > 1:
            texts[task] = ", ".join(f"{model.upper()} {value:.1g}" for model, value in change.items())
            others = [value for model, value in change.items() if model != "can"]
            held[task] = change["can"] < ROUNDING and min(others) > ROUNDING
    return Finding(OFFSET_SENTENCE, "III", texts, verdict(held))


def measure_offset(folder: Path, task: str, protocol: str, data: str) -> dict[str, float]:
    """What an offset common to both patches does to the network trained in ``folder``.

    ``relation_change`` is the mean change of the relation units' outputs over their mean size;
    ``parameter_error`` and ``parameter_error_shifted`` are the errors without and with the offset.
    """
    import torch

    from caunet.data import PairSource, load_images
    from caunet.models import load_weights

    model = load_weights(folder / "weights.safetensors")
    model.eval()
    source = PairSource(load_images(data, split="test"), task, protocol, pairs="fresh", per_image=1)
    pairs = source.batch(0, torch.arange(min(2000, len(source))))
    x, y = pairs.x.flatten(1), pairs.y.flatten(1)
    with torch.no_grad():
        before, after = model.relate(x, y), model.relate(x + OFFSET, y + OFFSET)
        plain, shifted = model(x, y), model(x + OFFSET, y + OFFSET)
    return {
        "offset": OFFSET,
        "relation_change": float((after - before).abs().mean() / before.abs().mean()),
        "parameter_error": float((plain - pairs.z).square().mean()),
        "parameter_error_shifted": float((shifted - pairs.z).square().mean()),
    }


def claims_markdown(results: Sequence[Result]) -> str:
    """The table of claims in Markdown; empty when none was run."""
    findings = judge(results)
    if not findings:
        return ""
    chosen = [result for result in results if result["recipe"] == "claims"]
    heads = ["The paper says", *(task.capitalize() for task in CLAIM_TASKS), "Verdict"]
    rows = []
    for finding in findings:
        texts = [finding.texts.get(task, "–") for task in CLAIM_TASKS]
        rows.append([f"{finding.sentence} ({finding.where})", *texts, finding.verdict])
    table = Table(heads, "l" * len(heads), rows).markdown()
    about = (
        f"{caption(chosen)}. Parameter error of the paper's network against the variant's; the last row is "
        f"the change of the relation units' outputs when {OFFSET} (of a range of 1) is added to both images."
    )
    for task in CLAIM_TASKS:
        if known := matching([r for r in chosen if r["task"] == task], "parameter_error"):
            told = ", ".join(f"{name} {show(value)}" for name, value in known.items())
            about += f" {task.capitalize()} without learning: {told}."
    return "#### The paper's sentences, tested\n\n" + about + "\n\n" + table + "\n"


def control_markdown(results: Sequence[Result]) -> str:
    """One line that compares the 200,000-update control with the same run cut short."""
    long = [result for result in results if result["recipe"] == "control"]
    lines = []
    for result in long:
        same = [r for r in results if r["recipe"] == "written"]
        short = [r for r in _of(same, result["task"], result["model"]) if r["seed"] == result["seed"]]
        against = f", against {show(short[0]['parameter_error'])} at {short[0]['updates']:,}" if short else ""
        name = f"{result['model'].upper()} on {result['task']}, as written"
        lines.append(
            f"Control, {name}: {show(result['parameter_error'])} at {result['updates']:,} updates{against}."
        )
    return "\n\n".join(lines) + "\n" if lines else ""


def add_offsets(cells: Sequence[Any], out: Path) -> None:
    """Measure the offset for the claims' plain networks that are finished; each is kept beside its run."""
    from caunet.files import write_json
    from caunet.reproduction.results import finished

    for cell in cells:
        folder = out / cell.name
        if cell.recipe != "claims" or cell.label not in MODELS or not finished(cell, folder):
            continue
        if not (folder / "offset.json").exists():
            c = cell.config
            write_json(folder / "offset.json", measure_offset(folder, c.task, c.protocol, c.data))
