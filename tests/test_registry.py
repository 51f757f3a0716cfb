"""Names from outside: entry points, --import, CAUNET_IMPORT."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from caunet import tasks
from caunet.cli import main
from caunet.errors import CaunetError
from caunet.registry import Registry

PLUGIN = """
from caunet.registry import Registry
import plugs
plugs.COLORS.register("green", 0x00FF00)
"""


@pytest.fixture
def plugs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[int]]:
    """A registry whose group has three entry points of an installed package: one good, one broken, one of both."""
    (tmp_path / "good_plug.py").write_text(PLUGIN)
    (tmp_path / "bad_plug.py").write_text("raise RuntimeError('out of order')")
    (tmp_path / "plugs.py").write_text("")
    info = tmp_path / "plugs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[test.colors]\nred = bad_plug\ngreen = good_plug:anything\n")
    monkeypatch.syspath_prepend(tmp_path)
    import plugs

    plugs.COLORS = Registry[int]("color", "test.colors")
    yield plugs.COLORS
    for name in ("plugs", "good_plug", "bad_plug"):
        sys.modules.pop(name, None)


def test_entry_points_are_imported_when_their_name_is_asked_for(plugs: Registry[int]) -> None:
    plugs.register("blue", 0x0000FF)
    assert plugs.lookup("blue") == 0x0000FF
    assert "good_plug" not in sys.modules
    assert plugs.lookup("green") == 0x00FF00
    assert list(plugs) == ["blue", "green"]


def test_a_broken_package_disturbs_only_those_who_ask_for_it(plugs: Registry[int]) -> None:
    assert list(plugs) == ["green"]


def test_a_broken_package_is_named_when_asked_for(plugs: Registry[int]) -> None:
    for _ in range(2):
        with pytest.raises(CaunetError, match="cannot import bad_plug: RuntimeError: out of order"):
            plugs.lookup("red")


UNIT = """
from caunet import nn
from caunet.models import register_model

@nn.register_relation("test-absolute")
class Absolute(nn.PairRelation):
    spec_options = frozenset({"units"})
    nonnegative_weights = True
    smallest_wins = True

    def forward(self, a, b):
        return (a.unsqueeze(-1) - b.unsqueeze(-2)).abs().flatten(-2) @ self.weight.flatten(1).T

register_model("test-adn", relation="test-absolute", units=7, about="absolute differences")
"""


@pytest.fixture
def my_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from caunet.models import registry
    from caunet.nn import RELATIONS

    (tmp_path / "my_test_units.py").write_text(UNIT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("CAUNET_IMPORT", "")
    yield
    sys.modules.pop("my_test_units", None)
    for known, name in ((registry._MODELS, "test-adn"), (RELATIONS, "test-absolute")):
        if name in known:
            known.unregister(name)


@pytest.mark.usefixtures("my_units")
def test_a_module_in_the_current_folder_is_imported_by_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["models", "--import", "my_test_units"]) == 0
    assert "test-adn" in capsys.readouterr().out


@pytest.mark.usefixtures("my_units")
def test_a_module_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--import=my_other_units"]) == 2
    said = capsys.readouterr().err
    assert (
        said
        == "caunet: cannot import my_other_units: ModuleNotFoundError: No module named 'my_other_units'\n"
    )
    assert main(["models", "--import"]) == 2
    assert "must be followed by the name of a module" in capsys.readouterr().err


@pytest.mark.usefixtures("my_units")
def test_workers_find_the_modules_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAUNET_IMPORT", "my_test_units")
    fresh: Registry[int] = Registry("model", "no.such.group")
    assert "test-adn" not in fresh
    assert "my_test_units" in sys.modules


def test_a_task_that_nobody_knows_is_named_with_its_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'rotation'"):
        tasks.get("rotatoin")
