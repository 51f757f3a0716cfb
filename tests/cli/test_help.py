"""What the command line says before anything is computed: help, wrong words, addresses."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from caunet.cli import main
from caunet.cli.parser import COMMANDS, command_names, parse


def _help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        parse([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", command_names(), ids=" ".join)
def test_help_says_what_to_type_and_nothing_of_pythons_none(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    text = _help(words, capsys)
    assert f"usage: caunet {' '.join(words)}" in text
    assert "{None}" not in text
    assert "None" not in re.findall(r"\(default: ([^)]*)\)", re.sub(r"[│\s]+", " ", text))
    assert "(default: )" not in re.sub(r"[│\s]+", " ", text)
    assert not re.search(r"\b(STR|INT|FLOAT)\b", text)


def test_help_is_not_broken_where_the_source_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a terminal that is wide enough, what an option says is one line, though its source has three."""
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((500, 50)))
    rows = _help(("estimate",), capsys).splitlines()
    assert any(
        "--model" in row and "(needs --focal). The simplest model that can hold" in row for row in rows
    )
    assert any(
        "borders of one gray level; say what else" in row and "--region. What you" in row for row in rows
    )


def test_the_first_help_lists_every_command_without_the_parsers_library() -> None:
    code = "import sys; from caunet.cli import main; main(['--help']); print(sorted(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    text, modules = said.rsplit("\n[", 1)
    assert all(re.search(rf"^  {name} ", text, re.MULTILINE) for name in COMMANDS)
    assert not {"'tyro'", "'torch'", "'numpy'", "'rich'"} & set(modules.rstrip("]\n").split(", "))
    # A proxy for its cost that does not depend on how busy the machine is: Python itself has some 60.
    assert modules.count(",") < 220


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["estmate", "a.png"], "'estmate' is not a command of caunet (did you mean 'estimate'?)"),
        (["data", "fech"], "'fech' is not a command of caunet data (did you mean 'fetch'?)"),
        (["--verson"], "'--verson' is not an option of caunet"),
    ],
)
def test_a_wrong_command_is_one_line_with_the_nearest(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"caunet: {hint}")
    assert said.count("\n") == 1


def test_completion_knows_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--tyro-print-completion", "bash"])
    assert ended.value.code in (0, None)
    script = capsys.readouterr().out
    assert not [name for words in command_names() for name in words if name not in script]


@pytest.mark.parametrize("words", [["estimate", "ADDRESS", "b.png"], ["align", "ADDRESS"]])
def test_addresses_are_refused_by_name(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word.replace("ADDRESS", "https://example.org/a.png") for word in words]) == 2
    said = capsys.readouterr().err
    assert "https:/example.org/a.png" in said
    assert "is an address, not a file; caunet fetches nothing" in said


def test_a_confidence_is_shown_below_its_bound() -> None:
    from caunet.cli.estimate import _below

    for confidence, bound in ((0.9987, 1.0), (0.99999, 1.0), (0.4999, 0.5), (0.2, 0.5)):
        assert float(_below(confidence, bound)) < bound
