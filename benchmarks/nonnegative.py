"""Optimizers for non-negative weights, on non-negative matrix factorization: V ≈ W H, all entries at least 0.

    python -m benchmarks.nonnegative [--steps 300] [--seeds 3]

V are scikit-learn's digits (1797 x 64), the rank is 16. Each optimizer gets the best of its rates on seed 100, all
rates falling to zero in a straight line; then the error is measured on other seeds. Beside them stand NMF's own
algorithms: the classic update of Lee and Seung, and scikit-learn's two solvers. The error is |V - W H| / |V|
(Frobenius).
"""

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from caunet.extras import require
from caunet.optim import MultiplicativeAdam, MultiplicativeUpdate, ProjectedAdam
from caunet.progress import track
from caunet.reproduction.tables import fill, show
from caunet.tables import Table, bold

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import save, threads

RANK = 16
PAGE = Path(__file__).parents[1] / "docs" / "nonnegative.md"


class Madam(torch.optim.Optimizer):
    """Bernstein et al. 2020: W <- W exp(-lr sign(W) g / rms(g)), the factor clamped; weights keep their signs."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                square = state.setdefault("square", torch.zeros_like(p))
                square.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                ratio = p.grad / (square / (1 - 0.999 ** state["step"])).sqrt().clamp_min(1e-30)
                p.mul_(torch.exp(-group["lr"] * ratio.clamp(-10, 10)))


def identity(theta: Tensor) -> Tensor:
    return theta


# name -> (optimizer, the weights as a function of the parameters, its inverse, rates to choose from)
Method = tuple[Callable[..., Any], Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], tuple[float, ...]]
METHODS: dict[str, Method] = {
    "MultiplicativeUpdate": (MultiplicativeUpdate, identity, identity, (0.002, 0.005, 0.01)),
    "MultiplicativeAdam": (MultiplicativeAdam, identity, identity, (0.1, 0.2, 0.5)),
    "MultiplicativeAdam, mix 0.02": (
        lambda params, lr: MultiplicativeAdam(params, lr, mix=0.02), identity, identity, (0.05, 0.1, 0.2)
    ),
    "projection (ProjectedAdam)": (ProjectedAdam, identity, identity, (0.01, 0.02, 0.05)),
    "softplus, Adam": (torch.optim.Adam, nn.functional.softplus, lambda w: (w.expm1()).log(), (0.05, 0.1, 0.2)),
    "exp, Adam": (torch.optim.Adam, torch.exp, torch.log, (0.1, 0.2, 0.5)),
    "Madam": (Madam, identity, identity, (0.05, 0.1, 0.2)),
}  # fmt: skip


def start(V: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """W (N, RANK) and H (RANK, M), uniform, of the size that fits V."""
    generator = torch.Generator().manual_seed(seed)
    size = 2 * (V.mean() / RANK).sqrt()
    W, H = (torch.rand(shape, generator=generator) for shape in ((len(V), RANK), (RANK, V.shape[1])))
    return (W + 1e-3) * size, (H + 1e-3) * size


def relative(V: Tensor, W: Tensor, H: Tensor) -> float:
    return float((V - W @ H).norm() / V.norm())


def run(V: Tensor, name: str, rate: float, seed: int, steps: int) -> dict[str, float]:
    """Factor V by gradients: the error, the time of a step, the optimizer's own numbers per weight."""
    make, forward, inverse, _ = METHODS[name]
    factors = [nn.Parameter(inverse(f)) for f in start(V, seed)]
    optimizer = make(factors, lr=rate)
    started = time.perf_counter()
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
        optimizer.zero_grad()
        W, H = (forward(f) for f in factors)
        (0.5 * (V - W @ H).square().sum() / len(V)).backward()
        optimizer.step()
    seconds = time.perf_counter() - started
    with torch.no_grad():
        error = relative(V, *(forward(f) for f in factors))
    held = sum(
        t.numel() for s in optimizer.state.values() for t in s.values() if isinstance(t, Tensor) and t.ndim
    )
    return {"error": error, "ms": 1000 * seconds / steps, "held": held / sum(f.numel() for f in factors)}


def classic(V: Tensor, seed: int, steps: int) -> dict[str, float]:
    """Lee and Seung's update: ratios of sums, no rate."""
    W, H = start(V, seed)
    started = time.perf_counter()
    for _ in range(steps):
        H = H * (W.T @ V) / (W.T @ W @ H).clamp_min(1e-12)
        W = W * (V @ H.T) / (W @ (H @ H.T)).clamp_min(1e-12)
    return {"error": relative(V, W, H), "ms": 1000 * (time.perf_counter() - started) / steps, "held": 0.0}


def solver(V: Tensor, name: str, seed: int, steps: int) -> dict[str, float]:
    """scikit-learn's NMF from the same start: ``cd`` (coordinate descent) or ``mu``."""
    nmf = require("sklearn.decomposition", "bench", "NMF").NMF
    W, H = (f.double().numpy() for f in start(V, seed))
    model = nmf(RANK, init="custom", solver=name, max_iter=steps, tol=0.0)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged, which was not asked
        W = model.fit_transform(V.double().numpy(), W=W.copy(), H=H.copy())
    seconds = time.perf_counter() - started
    found = relative(V.double(), torch.from_numpy(W), torch.from_numpy(model.components_))
    return {"error": found, "ms": 1000 * seconds / steps, "held": 0.0}


def measure(steps: int, seeds: int) -> dict[str, Any]:
    loaded = require("sklearn.datasets", "bench", "The digits").load_digits()
    V = torch.from_numpy(loaded.data).float() / 16
    own: dict[str, Callable[[int], dict[str, float]]] = {
        "classic update (Lee and Seung)": lambda seed: classic(V, seed, steps),
        "scikit-learn, mu": lambda seed: solver(V, "mu", seed, steps),
        "scikit-learn, cd": lambda seed: solver(V, "cd", seed, steps),
    }
    found: dict[str, Any] = {}
    with threads(1), track(len(METHODS) + len(own), "factorizations", "methods") as bar:
        for name, (*_, rates) in METHODS.items():
            looks = {rate: run(V, name, rate, 100, steps)["error"] for rate in rates}
            best = min(looks, key=lambda rate: looks[rate])
            found[name] = _summary([run(V, name, best, seed, steps) for seed in range(seeds)])
            found[name] |= {"rate": best, "looks": {str(rate): error for rate, error in looks.items()}}
            bar.advance()
        for name, call in own.items():
            found[name] = _summary([call(seed) for seed in range(seeds)])
            bar.advance()
    return {"steps": steps, "seeds": seeds, "rank": RANK, "methods": found}


def _summary(runs: list[dict[str, float]]) -> dict[str, Any]:
    errors = [one["error"] for one in runs]
    spread = statistics.stdev(errors) if len(errors) > 1 else None
    ms = statistics.median(one["ms"] for one in runs)
    return {
        "error": statistics.fmean(errors),
        "deviation": spread,
        "ms": round(ms, 3),
        "held": runs[0]["held"],
    }


def markdown(found: dict[str, Any]) -> str:
    lowest = min(one["error"] for one in found["methods"].values())
    rows: list[list[Any]] = []
    for name, one in found["methods"].items():
        spread = "" if one["deviation"] is None else f" ± {one['deviation']:.4f}"
        cell = bold(f"{one['error']:.4f}{spread}", one["error"] == lowest)
        rows.append([name, cell, show(one["rate"]) if "rate" in one else "", f"{one['held']:.0f}"])
    heads = ["", "relative error", "rate", "numbers held per weight"]
    about = f"Digits, rank {found['rank']}, {found['steps']:,} steps, {found['seeds']} seeds."
    return f"{about}\n\n{Table(heads, 'lrrr', rows).markdown()}\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    found = measure(options.steps, options.seeds)
    save("nonnegative", found)
    if PAGE.exists():
        fill(PAGE, markdown(found), "nonnegative")
    return 0


if __name__ == "__main__":
    sys.exit(main())
