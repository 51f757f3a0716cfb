"""Weights that come with the package: packing a run, loading it again, and whether what is shipped is as good as its
card says."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import caunet
from caunet.cli import main
from caunet.cli.parser import parse
from caunet.cli.weights import training_command
from caunet.data import PairSource, Photometric, load_images
from caunet.errors import CheckpointError, DataError
from caunet.estimation import estimator
from caunet.evaluation import evaluate
from caunet.matching.network import MatchNetwork, save_matcher, shipped_matcher
from caunet.models import (
    create_model,
    list_pretrained,
    load_pretrained,
    load_weights,
    save_weights,
)
from caunet.models.packing import pack, remeasure
from caunet.models.pretrained import card, cards_table
from caunet.training import TrainConfig
from caunet.training.loop import load_sources

ROOT = Path(__file__).parents[1]
CONFIG = TrainConfig(task="rotation", model="can", model_options={"units": 8}, updates=50)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package without weights."""
    path = tmp_path / "weights"
    path.mkdir()
    monkeypatch.setattr("caunet.shipped.weights_folder", lambda: path)
    monkeypatch.setattr("caunet.models.packing.weights_folder", lambda: path)
    return path


@pytest.fixture
def run_dir(tmp_path):
    """What training leaves behind, without the training."""
    path = tmp_path / "run"
    path.mkdir()
    model = create_model("can", "rotation", units=8, seed=0)
    save_weights(model, path / "weights.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIG.to_json()))
    (path / "result.json").write_text(
        json.dumps({"commit": "abc", "seconds": 1.5, "environment": {"torch": "2"}})
    )
    return path


def errors(value, count=10):
    corner = {"mean": value / 10, "median": value / 20, "p90": value}
    return {"parameter_error": value, "transformation_error": 0.1, "corner_error": corner, "count": count}


def test_a_packed_network_is_loaded_again(folder, run_dir):
    seen = []

    def measure(model):
        seen.append(model)
        return errors(4.0 + 0.02 * (len(seen) - 1))

    made = pack(run_dir, "can-rotation", measure, command="caunet train --task rotation")
    assert list_pretrained() == ["can-rotation"]
    assert card("can-rotation") == made
    assert made["metrics"]["float32"]["parameter_error"] == 4.0
    assert made["metrics"]["float16"]["parameter_error"] == 4.02
    assert made["metrics"]["float16"]["corner_error"] == pytest.approx(0.402)
    assert (made["commit"], made["precision"], made["parameters"]) == (
        "abc",
        "float16",
        seen[0].parameter_count(),
    )
    assert made["config"]["model_options"] == {"units": 8}
    assert made["bytes"] == (folder / "can-rotation.safetensors").stat().st_size
    model = create_model("can", "rotation", pretrained=True)
    assert not model.training
    original = load_weights(run_dir / "weights.safetensors").state_dict()
    for name, weight in model.state_dict().items():
        assert weight.dtype == torch.float32
        if not name.startswith("relation"):  # whose factors are balanced first
            assert torch.equal(weight, original[name].half().float())
        assert torch.equal(weight, seen[1].state_dict()[name]), "what was measured is what is shipped"
    assert load_pretrained("can-rotation", dtype=torch.float64).decoder[0].weight.dtype == torch.float64
    with torch.no_grad():
        model.decoder[0].weight.zero_()
    assert load_pretrained("can-rotation").decoder[0].weight.any(), "every call gives a network of its own"


def test_a_card_is_completed_by_measuring_again(folder, run_dir):
    pack(run_dir, "can-rotation", lambda model: errors(4.0), command="caunet train --task rotation")
    path = folder / "can-rotation.json"
    old = json.loads(path.read_text())
    del old["nonzero"]
    path.write_text(json.dumps(old))
    each = {"angle": {"error": 4.0, "error_of_mean": 680.0, "r2": 0.994}}
    made = remeasure("can-rotation", lambda model: {**errors(4.05, 20), "per_parameter": each}, folder)
    assert made == card("can-rotation")
    assert made["metrics"]["float16"]["per_parameter"] == {"angle": {"error": 4.0, "r2": 0.994}}
    assert made["metrics"]["float16"]["parameter_error"] == 4.0
    assert made["metrics"]["float16"]["per_parameter_pairs"] == 20
    assert made["nonzero"] == load_pretrained("can-rotation").nonzero_count()
    assert "| 0.99 | – | – |" in cards_table()
    better = {"angle": {"error": 0.5, "error_of_mean": 680.0, "r2": 0.9993}}
    made = remeasure(
        "can-rotation",
        lambda model: {**errors(4.05, 20), "per_parameter": each},
        folder,
        refined=lambda model: {**errors(0.5, 10), "per_parameter": better},
    )
    assert made["metrics"]["refined"]["pairs"] == 10
    assert made["metrics"]["refined"]["parameter_error"] == 0.5
    assert made["metrics"]["float16"]["parameter_error"] == 4.0
    assert re.search(r"\| 0\.99 \| [0-9.e-]+ \| 1\.00 \|", cards_table())
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"parameter error 4, measured now 4\.6"):
        remeasure("can-rotation", lambda model: errors(4.6), folder)
    assert path.read_bytes() == before


def test_names_that_are_not_shipped(folder, run_dir):
    with pytest.raises(
        ValueError, match="no weights named 'can-rotation' are shipped; this package has none"
    ):
        create_model("can", "rotation", pretrained=True)
    pack(run_dir, "can-rotation", lambda _: errors(1.0), command="")
    message = r"no weights named 'can-scaling' are shipped; there are can-rotation"
    with pytest.raises(ValueError, match=message):
        create_model("can", "scaling", pretrained=True)
    with pytest.raises(ValueError, match=r"\(did you mean 'can-rotation'\?\)"):
        load_pretrained("can-rotaton")
    with pytest.raises(ValueError, match="model must be one of ctn"):
        create_model("cna", "rotation", pretrained=True)


@pytest.mark.usefixtures("folder")
def test_a_shipped_network_is_taken_as_it_is(run_dir):
    pack(run_dir, "can-rotation", lambda _: errors(1.0), command="")
    for option in ({"units": 300}, {"seed": 0}, {"features": nn.Identity()}):
        with pytest.raises(ValueError, match=f"without options of the network, got {next(iter(option))}"):
            create_model("can", "rotation", pretrained=True, **option)
    with pytest.raises(ValueError, match="patch must be 11, on which can-rotation was trained, got 9"):
        create_model("can", "rotation", patch=9, pretrained=True)
    assert (
        create_model("can", "rotation", pretrained=True, dtype=torch.float64).relation.u.dtype
        == torch.float64
    )


def test_a_network_that_suffers_is_refused(folder, run_dir):
    values = iter([1.0, 1.02])
    with pytest.raises(
        CheckpointError, match=r"1\.0 becomes 1\.02 in float16, more than 1% worse; .*float32"
    ):
        pack(run_dir, "can-rotation", lambda _: errors(next(values)), command="")
    model = load_weights(run_dir / "weights.safetensors")
    with torch.no_grad():
        model.decoder[0].weight[0, 0] = 1e6
    save_weights(model, run_dir / "weights.safetensors")
    with pytest.raises(CheckpointError, match="too large for float16; keep float32"):
        pack(run_dir, "can-rotation", lambda _: errors(1.0), command="")
    assert list(folder.iterdir()) == []
    made = pack(run_dir, "can-rotation", lambda _: errors(1.0), command="", precision="float32", note="large")
    assert (made["precision"], made["note"]) == ("float32", "large")
    assert load_pretrained("can-rotation").decoder[0].weight[0, 0] == 1e6


@pytest.mark.usefixtures("folder")
def test_factors_out_of_balance_are_no_obstacle(run_dir):
    # As trained ones are: u up to 6e7 where v is tiny, the other way round elsewhere.
    model = load_weights(run_dir / "weights.safetensors")
    x, y = torch.rand(2, 50, 11, 11, generator=torch.Generator().manual_seed(0)) - 0.5
    with torch.no_grad():
        model.relation.u.mul_(20), model.relation.v.mul_(20)
        before = model.relate(x, y)
        for term, power in enumerate((25, -25, 3, 0)):
            model.relation.u[term].mul_(2.0**power)
            model.relation.v[term].mul_(2.0**-power)
        save_weights(model, run_dir / "weights.safetensors")
        seen = []
        pack(run_dir, "can-rotation", lambda model: seen.append(model) or errors(1.0), command="")
        assert torch.equal(seen[0].relate(x, y), before), "moving powers of two changes nothing"
        assert max(float(w.max()) for w in seen[0].relation.parameters()) < 10
        torch.testing.assert_close(load_pretrained("can-rotation").relate(x, y), before, rtol=5e-3, atol=1e-3)


def test_unfinished_runs_and_odd_names(folder, run_dir, tmp_path):
    with pytest.raises(ValueError, match="name must be letters, digits"):
        pack(run_dir, "../can", lambda _: errors(1.0), command="")
    (run_dir / "result.json").unlink()
    with pytest.raises(CheckpointError, match=r"no .*result\.json; only a finished run can be packed"):
        pack(run_dir, "can-rotation", lambda _: errors(1.0), command="")
    (run_dir / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="is not a JSON object"):
        pack(run_dir, "can-rotation", lambda _: errors(1.0), command="")
    assert list(folder.iterdir()) == []


def test_damage_is_found(folder, run_dir):
    pack(run_dir, "can-rotation", lambda _: errors(1.0), command="")
    content = bytearray((folder / "can-rotation.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "can-rotation.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"is not the file of its card .* install caunet again"):
        load_pretrained("can-rotation")
    for text in ("{", "[]"):
        (folder / "can-rotation.json").write_text(text)
        with pytest.raises(CheckpointError, match="install caunet again"):
            load_pretrained("can-rotation")


def test_every_loader_of_shipped_weights_asks_the_card(folder):
    """A network that was exchanged, whole in itself, is not the one that the package ships."""
    shipped = Path(caunet.__file__).parent / "weights"
    (folder / "motion.json").write_bytes((shipped / "motion.json").read_bytes())
    other = load_weights(shipped / "motion.safetensors")
    with torch.no_grad():
        other.decoder[0].weight.mul_(2)
    save_weights(other, folder / "motion.safetensors")
    load_weights(folder / "motion.safetensors")  # a good file, by its own hash
    for load in (lambda: load_pretrained("motion"), caunet.Estimator):
        estimator._shipped.cache_clear()
        with pytest.raises(CheckpointError, match=r"motion\.safetensors is not the file of its card"):
            load()
    (folder / "match.json").write_bytes((shipped / "match.json").read_bytes())
    save_matcher(MatchNetwork(), folder / "match.safetensors")
    shipped_matcher.cache_clear()
    with pytest.raises(CheckpointError, match=r"match\.safetensors is not the file of its card"):
        shipped_matcher()
    (folder / "motion.safetensors").write_bytes((shipped / "motion.safetensors").read_bytes())
    assert caunet.Estimator().network.model_spec.task == "motion"
    estimator._shipped.cache_clear()


@pytest.mark.usefixtures("folder")
def test_the_commands(run_dir, tmp_path, capsys):
    # Two pictures, so that there are few pairs.
    (tmp_path / "pictures").mkdir()
    for name in ("a.png", "b.png"):
        noise = np.random.default_rng(len(name)).integers(0, 256, (96, 96), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "pictures" / name)
    config = CONFIG.replace(data=str(tmp_path / "pictures"))
    (run_dir / "config.json").write_text(json.dumps(config.to_json()))
    assert main(["weights", "list"]) == 0
    assert "no weights" in capsys.readouterr().out
    assert main(["weights", "pack", str(run_dir), "can-rotation", "--pairs", "300"]) == 0
    said = capsys.readouterr().out
    assert "300 test pairs" in said
    assert main(["weights", "list", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)["can-rotation"]
    # The same pairs measured here: the card's numbers are those of the network.
    found = evaluate(load_pretrained("can-rotation"), load_sources(config)[1], limit=300, progress=False)
    assert known["metrics"]["float16"]["parameter_error"] == pytest.approx(found["parameter_error"], rel=1e-6)
    assert known["command"] == training_command(config)
    assert main(["weights", "list"]) == 0
    assert "can-rotation" in capsys.readouterr().out
    assert main(["weights", "list", "--markdown"]) == 0
    assert "| `can-rotation` | `can`, rotation | " in capsys.readouterr().out
    page = tmp_path / "page.md"
    page.write_text("Before\n<!-- weights:begin -->\nold\n<!-- weights:end -->\nafter\n")
    assert main(["weights", "list", "--fill", str(page)]) == 0
    assert [line for line in page.read_text().splitlines() if line] == [
        "Before",
        "<!-- weights:begin -->",
        *cards_table().splitlines(),
        "<!-- weights:end -->",
        "after",
    ]
    capsys.readouterr()
    assert main(["weights", "pack", str(tmp_path / "nowhere"), "x"]) == 2
    assert "name the directory of a finished run" in capsys.readouterr().err
    (run_dir / "config.json").write_text("{}x")
    assert main(["weights", "pack", str(run_dir), "x"]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_the_command_of_a_run_makes_that_run():
    config = TrainConfig(
        task="affine",
        model="bln",
        model_options={"bias": False, "hidden": [5]},
        photometric={"gain": [0.8, 1.2]},
        updates=7,
        rate=0.01,
        adam_reset=True,
        schedule="cosine",
    )
    words = shlex.split(training_command(config))
    assert words[0] == "caunet"
    assert parse(words[1:]).config.checked() == config


# What is really shipped.


@pytest.mark.parametrize("name", list_pretrained())
def test_shipped_networks_are_as_good_as_their_cards(name):
    known = card(name)
    model = load_pretrained(name)
    assert model.parameter_count() == known["parameters"]
    assert (model.spec["name"], model.spec["task"]) == (known["model"], known["task"])
    full, packed = (known["metrics"][kind]["parameter_error"] for kind in ("float32", known["precision"]))
    assert packed <= full * 1.01
    for field in ("command", "commit", "data", "protocol", "config"):
        assert known[field]
    testing, same = some_pairs(TrainConfig.from_json(known["config"]))
    measured = evaluate(model, testing, progress=False)
    if same:  # the median, for a few bad pairs make the mean of 2000 uncertain
        promised = known["metrics"][known["precision"]]["corner_error_median"]
        assert measured["corner_error"]["median"] == pytest.approx(promised, rel=0.1)
    middle = (torch.tensor(testing.task.low) + torch.tensor(testing.task.high)) / 2
    guess = evaluate(lambda x, y: middle.expand(len(x), -1), testing, progress=False)["parameter_error"]
    assert measured["parameter_error"] < 0.8 * guess


def some_pairs(config):
    """2000 of the test pairs of a run, and whether they are its own: without CIFAR-10 they are of photographs."""
    try:
        images, same = load_images(config.data, split="test"), True
    except DataError:
        images, same = load_images("photos", split="test"), False
    photometric = Photometric.from_json(config.photometric) if config.photometric else None
    pairs = PairSource(
        images.pixels[:: len(images) // 200][:200],
        config.task,
        config.protocol,
        patch=config.patch,
        photometric=photometric,
    )
    return pairs, same


def test_shipped_networks_are_a_few_megabytes():
    assert sum(card(name)["bytes"] for name in list_pretrained()) < 20e6


def test_the_table_in_the_docs_is_that_of_the_cards():
    text = (ROOT / "docs" / "models.md").read_text()
    inside = text.partition("<!-- weights:begin -->")[2].partition("<!-- weights:end -->")[0]
    assert inside.strip() == cards_table(), "run `caunet weights list --fill docs/models.md`"
