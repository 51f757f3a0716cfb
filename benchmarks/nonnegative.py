"""Optimizers for non-negative weights, on non-negative matrix factorization: V ≈ W H, all entries at least 0.

    python -m benchmarks.nonnegative [--steps 300] [--seeds 3]

V are scikit-learn's digits (1797 x 64), the rank is 16. Each optimizer gets its best rate on seed 100, among 1, 2, 5,
10, ... in both directions until both neighbors are worse; rates fall to zero in a straight line. Then the error,
|V - W H| / |V| (Frobenius), is measured on other seeds. Beside them stand NMF's own algorithms: the classic update of
Lee and Seung, scikit-learn's two solvers, and torchnmf. Memory is what one step holds between steps and allocates at
its peak beside weights and gradients, by torch's profiler, in numbers per weight.
"""

import argparse
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from caunet.extras import require
from caunet.optim import MultiplicativeAdam, MultiplicativeUpdate, ProjectedAdam
from caunet.progress import track
from caunet.reproduction.tables import fill
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


# name -> (optimizer, the weights as a function of the parameters, its inverse, the rate to begin the search at)
Method = tuple[Callable[..., Any], Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], float]
METHODS: dict[str, Method] = {
    "MultiplicativeUpdate": (MultiplicativeUpdate, identity, identity, 0.005),
    "MultiplicativeAdam": (MultiplicativeAdam, identity, identity, 0.2),
    "MultiplicativeAdam, mix 0.02": (
        lambda params, lr: MultiplicativeAdam(params, lr, mix=0.02), identity, identity, 0.1
    ),
    "projection (ProjectedAdam)": (ProjectedAdam, identity, identity, 0.05),
    "softplus, Adam": (torch.optim.Adam, nn.functional.softplus, lambda w: (w.expm1()).log(), 0.1),
    "exp, Adam": (torch.optim.Adam, torch.exp, torch.log, 0.2),
    "Madam": (Madam, identity, identity, 0.1),
}  # fmt: skip


def start(V: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """W (N, RANK) and H (RANK, M), uniform, of the size that fits V."""
    generator = torch.Generator().manual_seed(seed)
    size = 2 * (V.mean() / RANK).sqrt()
    W, H = (torch.rand(shape, generator=generator) for shape in ((len(V), RANK), (RANK, V.shape[1])))
    return (W + 1e-3) * size, (H + 1e-3) * size


def relative(V: Tensor, W: Tensor, H: Tensor) -> float:
    return float((V - W @ H).norm() / V.norm())


def run(V: Tensor, name: str, rate: float, seed: int, steps: int, memory: bool = False) -> dict[str, float]:
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
    count = sum(f.numel() for f in factors)
    held = sum(
        t.numel() for s in optimizer.state.values() for t in s.values() if isinstance(t, Tensor) and t.ndim
    )
    found = {"error": error, "ms": 1000 * seconds / steps, "held": held / count}
    return found | ({"peak": peak_bytes(optimizer.step) / 4 / count} if memory else {})


def peak_bytes(call: Callable[[], Any]) -> int:
    """The most that ``call`` has allocated at once, beyond what there was before, by torch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    assert profiler.profiler is not None
    events = profiler.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most


def best_rate(first: float, error_at: Callable[[float], float]) -> tuple[float, dict[float, float]]:
    """The rate of least error among 1, 2, 5, 10, ..., from ``first`` downhill, and all that were tried.

    >>> best_rate(0.1, lambda rate: abs(rate - 0.02))[0]
    0.02
    """
    tried: dict[int, float] = {}

    def look(place: int) -> float:
        if place not in tried:
            found = error_at(_rate(place))
            tried[place] = found if math.isfinite(found) else math.inf
        return tried[place]

    place = min(range(-18, 9), key=lambda k: abs(math.log(_rate(k) / first)))
    while (better := min((place - 1, place, place + 1), key=look)) != place:
        place = better
    return _rate(place), {_rate(k): tried[k] for k in sorted(tried)}


def _rate(place: int) -> float:
    return float(f"{(1, 2, 5)[place % 3]}e{place // 3}")


def classic(V: Tensor, seed: int, steps: int) -> dict[str, float]:
    """Lee and Seung's update: ratios of sums, no rate."""
    W, H = start(V, seed)
    started = time.perf_counter()
    for _ in range(steps):
        H = H * (W.T @ V) / (W.T @ W @ H).clamp_min(1e-12)
        W = W * (V @ H.T) / (W @ (H @ H.T)).clamp_min(1e-12)
    return {"error": relative(V, W, H), "ms": 1000 * (time.perf_counter() - started) / steps}


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
    return {"error": found, "ms": 1000 * seconds / steps}


def torchnmf(V: Tensor, seed: int, steps: int) -> dict[str, float]:
    """torchnmf's own multiplicative update, from the same start."""
    nmf = require("torchnmf.nmf", "bench", "torchnmf").NMF
    W, H = start(V, seed)
    model = nmf(W=H.T.contiguous(), H=W)  # it calls the factors the other way round: V ≈ H Wᵀ
    started = time.perf_counter()
    with torch.enable_grad():
        model.fit(V, beta=2, tol=-math.inf, max_iter=steps)
    seconds = time.perf_counter() - started
    return {"error": relative(V, model.H.detach(), model.W.detach().T), "ms": 1000 * seconds / steps}


def measure(steps: int, seeds: int) -> dict[str, Any]:
    loaded = require("sklearn.datasets", "bench", "The digits").load_digits()
    V = torch.from_numpy(loaded.data).float() / 16
    own: dict[str, Callable[[int], dict[str, float]]] = {
        "classic update (Lee and Seung)": lambda seed: classic(V, seed, steps),
        "scikit-learn, mu": lambda seed: solver(V, "mu", seed, steps),
        "scikit-learn, cd": lambda seed: solver(V, "cd", seed, steps),
        "torchnmf": lambda seed: torchnmf(V, seed, steps),
    }
    found: dict[str, Any] = {}
    with threads(1), track(len(METHODS) + len(own), "factorizations", "methods") as bar:
        for name, (*_, first) in METHODS.items():
            best, looks = best_rate(first, lambda rate, name=name: run(V, name, rate, 100, steps)["error"])
            found[name] = _summary([run(V, name, best, seed, steps, seed == 0) for seed in range(seeds)])
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
    memory = {key: round(runs[0][key], 2) for key in ("held", "peak") if key in runs[0]}
    return {"error": statistics.fmean(errors), "deviation": spread, "ms": round(ms, 3), **memory}


def markdown(found: dict[str, Any]) -> str:
    lowest = min(one["error"] for one in found["methods"].values())
    rows: list[list[Any]] = []
    for name, one in found["methods"].items():
        spread = "" if one["deviation"] is None else f" ± {one['deviation']:.4f}"
        cell = bold(f"{one['error']:.4f}{spread}", one["error"] == lowest)
        memory = [f"{one[key]:.1f}" if key in one else "" for key in ("held", "peak")]
        rows.append([name, cell, f"{one['rate']:g}" if "rate" in one else "", *memory])
    heads = ["", "relative error", "rate", "held", "peak of a step"]
    settings = f"Digits, rank {found['rank']}, {found['steps']:,} steps, {found['seeds']} seeds"
    about = f"{settings}. Memory in numbers per weight."
    return f"{about}\n\n{Table(heads, 'lrrrr', rows).markdown()}\n"


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
