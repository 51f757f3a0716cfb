"""What the README says runs as written."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from caunet.benchmark.pairs import make_pair
from caunet.benchmark.photographs import photographs
from caunet.geometry import apply

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_first_example_aligns_two_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photograph = next(iter(photographs("test").values()))
    pair = make_pair(photograph, "photometric", 0.05, 3)
    for name, picture in (("first", pair.a), ("second", pair.b)):
        Image.fromarray((255 * picture).round().byte().numpy()).save(tmp_path / f"{name}.png")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(EXAMPLES[0], "README.md", "exec"), names)
    corners = torch.tensor([[0.0, 0.0], [255.0, 0.0], [255.0, 255.0], [0.0, 255.0]], dtype=torch.float64)
    moved, truth = (apply(torch.as_tensor(H).double(), corners) for H in (names["found"].matrix, pair.H))
    assert (moved - truth).norm(dim=1).mean() < 0.5
    assert names["found"].confidence > 0.5
    assert names["aligned"].size == (256, 256)
    assert len(EXAMPLES) == 1


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 160
    assert len([line for line in EXAMPLES[0].splitlines() if line and not line.startswith("import")]) <= 5


def test_its_files_are_there() -> None:
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / target).exists(), f"README.md points at {target}, which is not there"


def test_its_commands_are_targets_of_make() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"^make ([a-z]+)", README, flags=re.MULTILINE)) <= targets
