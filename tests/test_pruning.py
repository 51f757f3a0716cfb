"""Pruning: what goes, what stays, and that it stays away."""

import math

import numpy as np
import pytest
import torch

import caunet
from caunet.models import RelationNetwork, create_model, prune
from caunet.models.pruning import GradualPruning
from caunet.nn import reparametrize
from caunet.training.config import TrainConfig
from caunet.training.loop import make_optimizer
from caunet.training.update import Update

BEST = {"contrast": 1.0, "target_scale": True}


def small(name: str, **options: object) -> RelationNetwork:
    hidden = {"hidden": (30, 10)} if name == "ctn" else {"units": 6, "hidden": (10,)}
    return create_model(name, "translation", patch=5, seed=3, **{**hidden, **options})


def batch(count: int = 40) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, count, 5, 5, generator=generator)
    return x, y, torch.rand(count, 2, generator=generator) - 0.5


class TestThreshold:
    @pytest.mark.parametrize("name", ["can", "bln", "ctn"])
    def test_rows_are_cut_at_a_share_of_their_largest(self, name: str) -> None:
        model = small(name)
        pruned = prune(model, threshold=0.3)
        names = (
            ["decoder.0.weight", "decoder.2.weight", "decoder.4.weight"]
            if name == "ctn"
            else ["relation.u", "relation.v"]
        )
        for key, before in model.state_dict().items():
            after = pruned.state_dict()[key].numpy()
            expected = before.numpy().copy()
            if key in names:
                for row in expected:
                    row[np.abs(row) < 0.3 * np.abs(row).max()] = 0
            np.testing.assert_array_equal(after, expected)
        assert pruned.nonzero_count() < model.nonzero_count() == model.parameter_count()

    def test_zero_keeps_everything(self) -> None:
        model = small("can")
        assert prune(model, threshold=0.0).nonzero_count() == model.parameter_count()


class TestKeep:
    @pytest.mark.parametrize("name", ["can", "bln", "ctn"])
    def test_exactly_so_many_stay(self, name: str) -> None:
        model = small(name)
        count = model.parameter_count() // 2 + 17
        assert prune(model, keep=count).nonzero_count() == count

    def test_what_counts_most_stays(self) -> None:
        model = small("bln", rank=2)
        pruned = prune(model, keep=0.2)
        u, v = (model.relation.get_parameter(n).detach().double().numpy() for n in "uv")
        scores = np.concatenate(
            [
                (np.abs(u) * np.abs(v).sum(1, keepdims=True)).ravel(),
                (np.abs(v) * np.abs(u).sum(1, keepdims=True)).ravel(),
            ]
        )
        kept = np.concatenate([pruned.relation.get_parameter(n).detach().numpy().ravel() != 0 for n in "uv"])
        assert kept.sum() == round(0.2 * scores.size)
        # All but the protected ones (one of each factor and unit) are the largest.
        assert (~kept[np.argsort(-scores)[: kept.sum() - 12]]).sum() == 0

    def test_no_unit_is_left_without_weights(self) -> None:
        model = small("can", rank=3)
        with torch.no_grad():
            model.relation.u[:3] *= 1e-6  # a unit that hardly counts
        pruned = prune(model, keep=0.03)
        for unit in range(6):
            view = pruned.relation.view(unit)
            assert view is not None
            assert view.matrix.count_nonzero() > 0

    def test_the_model_stays_as_it_is(self) -> None:
        model = small("can")
        before = {name: t.clone() for name, t in model.state_dict().items()}
        caunet.prune(model, keep=0.1)
        assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())

    def test_wrong_arguments_are_named(self) -> None:
        model = small("can")
        with pytest.raises(ValueError, match="give either keep or threshold"):
            prune(model)
        with pytest.raises(ValueError, match="give either keep or threshold"):
            prune(model, keep=0.5, threshold=0.5)
        for keep in (0, -1, True, math.nan):
            with pytest.raises(ValueError, match="keep must be a share"):
                prune(model, keep=keep)
        with pytest.raises(ValueError, match="whole number"):
            prune(model, keep=2000.5)
        with pytest.raises(ValueError, match="keep must be above"):
            prune(model, keep=10)
        with pytest.raises(ValueError, match="threshold must be"):
            prune(model, threshold=1.0)
        free = small("can")
        reparametrize(free.relation, "exp")
        with pytest.raises(ValueError, match="no weights that can be set to zero"):
            prune(free, keep=0.5)


class TestCounts:
    def test_multiply_adds_without_zeros(self) -> None:
        model = prune(small("can", rank=2), keep=0.15)
        u, v = (model.relation.get_parameter(n).detach().numpy() for n in "uv")
        count = 0
        for unit in range(6):
            rows, columns = np.zeros(25), np.zeros(25)
            for k in (2 * unit, 2 * unit + 1):
                if u[k].any() and v[k].any():
                    count += np.count_nonzero(u[k]) + np.count_nonzero(v[k]) + 1
                    rows += u[k] * v[k].sum()
                    columns += v[k] * u[k].sum()
            count += np.count_nonzero(rows) + np.count_nonzero(columns)
        count += 6 * 10 + 10 * 2
        assert model.multiply_adds(sparse=True) == count

    @pytest.mark.parametrize("name", ["can", "bln", "ctn", "can-full"])
    def test_a_whole_network_has_as_many(self, name: str) -> None:
        model = small(name)
        assert model.multiply_adds(sparse=True) == model.multiply_adds()


class TestGradual:
    @pytest.mark.parametrize(
        ("name", "rule"),
        [("can", "multiplicative-adam"), ("can", "multiplicative"), ("bln", "auto"), ("ctn", "auto")],
    )
    def test_zeros_stay_while_the_rest_learns(self, name: str, rule: str) -> None:
        options = {**BEST, "relative": True} if name == "can" else BEST
        model = small(name, **options)
        config = TrainConfig(task="translation", model=name, rule=rule)  # type: ignore[arg-type]
        update = Update(model, make_optimizer(model, config), compile=False)
        pruning, target = GradualPruning(model, 0.3, updates=400), None
        before: dict[str, torch.Tensor] = {}
        for step in range(1, 401):
            update(*batch())
            pruning.after(step)
            zeros = {n: p == 0 for n, p in model.named_parameters()}
            assert all(bool((was & ~zeros[n]).sum() == 0) for n, was in before.items())
            if step > 100:  # pruning has begun
                before = zeros
            if step == 300:
                target = model.nonzero_count()
                rest = {n: p.clone() for n, p in model.named_parameters()}
        assert model.nonzero_count() == target == prune(small(name, **options), keep=0.3).nonzero_count()
        assert any(not torch.equal(rest[n], p) for n, p in model.named_parameters())

    def test_resuming_finds_the_pattern_in_the_weights(self) -> None:
        def run(restart: bool) -> dict[str, torch.Tensor]:
            model = small("bln", **BEST)
            update = Update(model, make_optimizer(model, TrainConfig(model="bln")), compile=False)
            pruning = GradualPruning(model, 0.3, updates=400)
            for step in range(1, 401):
                update(*batch())
                pruning.after(step)
                if restart and step == 250:
                    pruning = GradualPruning(model, 0.3, updates=400)
                    pruning.resume(step)
            return model.state_dict()

        once, twice = run(False), run(True)
        assert all(torch.equal(once[name], twice[name]) for name in once)
