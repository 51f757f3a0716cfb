"""What the README says runs as written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_example_learns(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in example.splitlines() if line]) <= 11
    exec(compile(example, "README.md", "exec"), {})
    # Uniform on [-45, 45]: always answering 0 has an error of 90² / 12 = 675.
    assert float(capsys.readouterr().out) < 400


def test_its_files_are_there() -> None:
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / target).exists(), f"README.md points at {target}, which is not there"


def test_its_commands_are_targets_of_make() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"^make ([a-z]+)", README, flags=re.MULTILINE)) <= targets
