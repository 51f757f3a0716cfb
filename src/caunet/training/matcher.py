"""Train the network that tells who matches: the units of all pairs in a batch compete, and the true partner shall win.

Every step is a function of (seed, step), and a run that was interrupted goes on from its newest checkpoint to the
same weights, bit for bit, as one that was not.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from caunet.errors import CheckpointError
from caunet.files import sha256, write_json
from caunet.matching.network import MatchNetwork, save_matcher
from caunet.matching.pairs import PatchPairs
from caunet.optim import HybridOptimizer
from caunet.provenance import commit
from caunet.training import checkpoint
from caunet.training.checkpoint import Checkpoint

__all__ = [
    "LOSSES",
    "MatcherConfig",
    "competition_loss",
    "train_matcher",
    "triplet_loss",
    "validate",
    "write_matcher",
]

_MARGIN = 0.5  # of the triplet loss; mismatches of unit features lie between 0 and 2
_WARM = 100  # updates during which rates rise
_COOL = 0.3  # share of the updates, the last ones, during which they fall


@dataclass(frozen=True)
class MatcherConfig:
    """How to train a matcher."""

    updates: int = 8000
    """Batches to learn from."""
    pairs: int = 512
    """In a batch: every patch has this many candidates."""
    rate: float = 0.003
    """Of Adam, for the features and the temperature."""
    rate_multiplicative: float = 0.01
    """Of the multiplicative update, for the weights of the relation units."""
    seed: int = 0
    """Of first weights and pairs."""
    checkpoint_every: int = 200
    """Updates between checkpoints."""
    loss: str = "softmin"
    """What is minimized: ``softmin`` (:func:`competition_loss`); ``triplet`` (:func:`triplet_loss`) for comparison."""

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r}")
        for name in ("updates", "pairs", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("rate", "rate_multiplicative"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}")


def train_matcher(
    images: Tensor,
    validation: Tensor,
    config: MatcherConfig,
    out: Path,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
) -> MatchNetwork:
    """Train on color ``images`` (N, 3, 32, 32) uint8; go on from the newest checkpoint in ``out`` if there is one.

    ``report`` gets the step, the loss and what :func:`validate` says, at every checkpoint.
    """
    network, optimizer, step = _restore(config, out)
    pairs = PatchPairs(images, config.pairs, config.seed)
    held_out = PatchPairs(validation, config.pairs, config.seed + 1)
    rates = [config.rate_multiplicative, config.rate]
    while step < config.updates:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * _schedule(step, config.updates)
        loss = LOSSES[config.loss](network.train(), *pairs(step))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step += 1
        if step % config.checkpoint_every == 0 or step == config.updates:
            state = Checkpoint(step, network.state_dict(), optimizer.state_dict(), asdict(config), {})
            checkpoint.save(out, state)
            figures = {"step": step, "loss": loss.item(), **validate(network, held_out)}
            write_json(out / "result.json", figures)
            report(figures)
    return network.eval()


def competition_loss(network: MatchNetwork, a: Tensor, b: Tensor) -> Tensor:
    """Minus the logarithm of the probability that the true partner wins, in both directions; mean of the pairs.

    Row i of the patches ``a`` and ``b`` (B, 32, 32) shows the same place.
    """
    first, second = network(torch.cat([a, b])).chunk(2)
    h = network.relation(first, second)
    true = torch.arange(len(a), device=a.device)
    forward, backward = (network.competition.log_probability(t) for t in (h, h.mT))
    return 0.5 * (nll_loss(forward, true) + nll_loss(backward, true))


def triplet_loss(network: MatchNetwork, a: Tensor, b: Tensor) -> Tensor:
    """By how much the mismatch of the true partner exceeds that of the best wrong one less a margin, if it does.

    The usual loss of learned descriptors (hinge, hardest candidate of the batch), in both directions; mean of the
    pairs. No unit competes, and the temperature is not learned.
    """
    first, second = network(torch.cat([a, b])).chunk(2)
    h: Tensor = network.relation(first, second)
    true = h.diagonal()
    wrong = h + torch.diag_embed(torch.full_like(true, float("inf")))
    nearest = torch.stack([wrong.amin(1), wrong.amin(0)])
    return (_MARGIN + true - nearest).clamp_min(0).mean()


LOSSES: dict[str, Callable[[MatchNetwork, Tensor, Tensor], Tensor]] = {
    "softmin": competition_loss,
    "triplet": triplet_loss,
}
"""What a matcher can be trained by."""


@torch.no_grad()
def validate(network: MatchNetwork, pairs: PatchPairs, batches: int = 4) -> dict[str, float]:
    """On pairs that were not trained on: how often the true partner of a wins among those of the batch."""
    network.eval()
    won, lost = 0.0, 0.0
    for step in range(batches):
        a, b = pairs(step)
        h = network.relation(network(a), network(b))
        won += float((h.argmin(1) == torch.arange(len(h))).float().mean()) / batches
        lost += float(competition_loss(network, a, b)) / batches
    return {"accuracy": won, "validation_loss": lost, "temperature": network.competition.temperature}


def write_matcher(network: MatchNetwork, out: Path, command: str) -> Path:
    """Write ``match.safetensors`` (float16) and its card ``match.json`` into the folder of a run; the former's path."""
    path = out / "match.safetensors"
    save_matcher(network, path)
    content = path.read_bytes()
    figures = json.loads((out / "result.json").read_text(encoding="utf-8"))
    card = {
        "name": "match",
        "model": "features of 32 x 32 patches, diagonal contrast association units, softmin",
        "data": "cifar10, in color",
        "updates": figures["step"],
        "command": command,
        "commit": commit(),
        "metrics": {name: figures[name] for name in ("accuracy", "validation_loss", "temperature")},
        "parameters": sum(p.numel() for p in network.fused().parameters()),
        "precision": "float16",
        "bytes": len(content),
        "sha256": sha256(content),
        "note": "Tells for caunet.estimate which places of two images are the same. accuracy: how often the true "
        "partner wins among the candidates of a batch, on changed patches of images that were not trained on.",
    }
    write_json(path.with_suffix(".json"), card)
    return path


def _schedule(step: int, updates: int) -> float:
    """Factor of the learning rates: up, level, and down to 0 at the end."""
    return min(1.0, (step + 1) / _WARM, (updates - step) / (_COOL * updates))


def _restore(config: MatcherConfig, out: Path) -> tuple[MatchNetwork, HybridOptimizer, int]:
    torch.manual_seed(config.seed)
    network = MatchNetwork()
    optimizer = HybridOptimizer.for_model(
        network, rule="multiplicative-adam", mix=0.04, lr=config.rate_multiplicative, free_lr=config.rate
    )
    for path in checkpoint.find(out):
        try:
            saved = checkpoint.load(path)
        except CheckpointError:
            continue  # the one before it is whole
        _check_same(saved.config, config, path)
        network.load_state_dict(saved.model)
        optimizer.load_state_dict(saved.optimizer)
        return network, optimizer, saved.step
    return network, optimizer, 0


def _check_same(saved: dict[str, Any], config: MatcherConfig, path: Path) -> None:
    """A run may become longer or shorter while its rates are still level, but nothing else may change."""
    wanted = json.loads(json.dumps(asdict(config)))
    saved = {"loss": MatcherConfig.loss, **saved}  # older runs knew one loss
    free = {"updates", "checkpoint_every"}
    for name in wanted.keys() - free:
        if saved.get(name) != wanted[name]:
            raise ValueError(
                f"{name} must stay {saved.get(name)!r} as in {path}, got {wanted[name]!r}; use another folder"
            )
