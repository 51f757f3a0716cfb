"""The tables of causes, from results made up here."""

from typing import Any

from caunet.reproduction.causes import ablation_markdown, initialization_markdown
from caunet.reproduction.recipes import cells


def result(
    recipe: str, model: str, task: str, seed: int, errors: dict[int, float], **more: Any
) -> dict[str, Any]:
    base = {
        "recipe": recipe,
        "model": model,
        "task": task,
        "seed": seed,
        "data": "cifar10",
        "protocol": "release" if recipe in ("released", "initialization") else "text",
        "updates": 20_000,
    }
    return {**base, "curve": {"test": [[step, error] for step, error in errors.items()]}, **more}


def rows(text: str) -> dict[str, list[str]]:
    found = [[f.strip() for f in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {fields[0]: fields[1:] for fields in found[2:]}


def test_a_change_stands_between_what_longer_runs_had_learned_by_then() -> None:
    results = [
        result("written", "ctn", "rotation", 0, {20_000: 2.0, 60_000: 0.3}, updates=60_000),
        result("written", "ctn", "rotation", 1, {20_000: 3.0, 60_000: 0.3}, updates=60_000),
        result("written", "can", "rotation", 0, {20_000: 2.4, 60_000: 2.2}, updates=60_000),
        result("released", "ctn", "rotation", 0, {20_000: 44.0}, updates=60_000, diverged_at=30_001),
        result("ablation", "can-reset", "rotation", 0, {20_000: 2.6}),
        result("ablation", "ctn-reset", "rotation", 0, {2_000: 300.0}, diverged_at=4_001),
        result("ablation", "ctn-reset", "rotation", 1, {20_000: 50.0}),
    ]
    text = ablation_markdown(results)
    assert "cifar10, 20,000 updates, 2 seeds." in text
    found = rows(text)
    translation_ctn, rotation_ctn, rotation_bln, rotation_can = 0, 5, 6, 7
    assert found["as written"][rotation_can + 1 : rotation_can + 3] == ["670", "6.4e-04"]  # mean, search
    assert found["as written"][-1] == "–, –, –, 2, –, 1"
    assert found["Adam reset at each update"][-1] == "–, –, –, 1, –, 1"
    assert found["as written"][rotation_ctn] == "2.50 ± 0.707"
    assert found["as written"][rotation_can] == "**2.40**"
    assert found["as written"][translation_ctn] == found["as written"][rotation_bln] == "–"
    assert found["Adam reset at each update"][rotation_ctn] == "50.0 and 1 diverged"
    assert found["no biases in BLN and CAN"][rotation_ctn] == "2.50 ± 0.707"  # it keeps its own
    assert found["all four: as released"][rotation_ctn] == "44.0"  # it diverged later
    assert ablation_markdown(results[:4]) == ""


def test_first_weights_are_compared_with_the_usual_ones() -> None:
    results = [
        result("released", "ctn", "affine", 0, {20_000: 0.02}, updates=60_000),
        result("initialization", "ctn-xavier", "affine", 0, {20_000: 0.03}),
        result("initialization", "ctn-uniform", "affine", 0, {}, diverged_at=501),
    ]
    found = rows(initialization_markdown(results))
    assert found["fan-in"][2:] == ["0.020", "1.00×", "–, 1"]
    assert found["xavier"] == ["–", "–", "0.030", "1.50×", "–, 1"]
    assert found["uniform"][2:] == ["1 diverged", "–", "–"]
    assert found["always the mean"][2:] == ["0.083", "", ""]
    assert found["exhaustive search"][2:] == ["–", "", ""]
    assert initialization_markdown(results[:1]) == ""


def test_one_thing_is_changed_at_a_time() -> None:
    plain = {c.label: c.config for c in cells(["written"], tasks=["rotation"], updates=20_000)}
    found = cells(["ablation"], tasks=["rotation"], updates=20_000)
    assert len(found) == 11  # four changes of three networks, but CTN's biases, which it has in both recipes
    for cell in found:
        model, _, name = cell.label.partition("-")
        before, after = plain[model].to_json(), cell.config.to_json()
        changed = [key for key in before if before[key] != after[key]]
        assert (
            changed
            == {
                "pairs": ["protocol"],
                "order": ["order"],
                "bias": ["model_options"],
                "reset": ["adam_reset"],
            }[name]
        )


def test_the_runs_of_other_first_weights_are_released_in_all_else() -> None:
    plain = {c.config.task: c.config for c in cells(["released"], models=["ctn"], updates=20_000)}
    found = cells(["initialization"], updates=20_000)
    assert [c.label for c in found] == ["ctn-xavier", "ctn-kaiming", "ctn-uniform"] * 2
    for cell in found:
        assert cell.config.replace(model_options={}) == plain[cell.config.task]
