"""A network by any name: shipped, a run, a file; on the command line and on the page."""

import json
from pathlib import Path

import pytest
import torch

import caunet
from caunet.cli import main
from caunet.errors import CheckpointError
from caunet.web.networks import Networks


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What a finished run leaves, of a network that nobody has trained."""
    folder = tmp_path / "mine"
    folder.mkdir()
    model = caunet.create_model("can-rank1", "rotation", seed=3)
    caunet.save_weights(model, folder / "weights.safetensors")
    (folder / "config.json").write_text(
        json.dumps({"task": "rotation", "protocol": "release", "data": "photos"})
    )
    return folder


def _same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    return all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))


def test_a_network_is_found_by_name_run_or_file(run: Path) -> None:
    assert "can-rotation" in caunet.list_pretrained()
    assert _same(caunet.load_network("can-rotation"), caunet.load_pretrained("can-rotation"))
    file = run / "weights.safetensors"
    for place in (run, str(run), file):
        assert _same(caunet.load_network(place), caunet.load_weights(file))
    with pytest.raises(CheckpointError, match="no file, run or shipped network 'can-rot' "):
        caunet.load_network("can-rot")
    with pytest.raises(CheckpointError, match="it is no run directory"):
        caunet.load_network(run.parent)


def test_a_shipped_network_is_evaluated_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "can-rotation", "--pairs", "400", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["results"]["can"]["parameter_error"] < 5
    assert answer["data"] == "photos"
    assert main(["evaluate", "can-rotatoin"]) == 2
    assert "did you mean 'can-rotation'?" in capsys.readouterr().err


def test_the_page_shows_the_network_of_a_run_beside_the_packages(run: Path) -> None:
    networks = Networks(run)
    assert networks.available("rotation") == ("ctn", "bln", "can")
    mine = networks.get("can", "rotation")
    assert _same(mine.model, caunet.load_weights(run / "weights.safetensors"))
    assert _same(networks.get("bln", "rotation").model, caunet.load_pretrained("bln-rotation"))
    assert _same(networks.get("can", "scaling").model, caunet.load_pretrained("can-scaling"))


def test_a_run_that_the_page_cannot_show_is_named(tmp_path: Path) -> None:
    caunet.save_weights(caunet.create_model("can", "motion"), tmp_path / "weights.safetensors")
    with pytest.raises(CheckpointError, match="got can for motion"):
        Networks(tmp_path)
