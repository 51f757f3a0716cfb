"""How long one training update of the paper's CAN takes: ours, the direct transcription, and the floor.

    python benchmarks/update.py [--processes 5] [--rounds 80] [--no-save]

Batch 100, 121 + 121 inputs, 1200 rank-one terms in 300 units, softmin, decoder 300-100-100-1 with PReLU, mean
squared error, multiplicative update and Adam.

* transcription: autograd through the paper's matrix form with four products 1200 wide, the multiplicative
  update as printed, torch's default Adam.
* eager and compiled: caunet.training.update.Update.
* floor: the bare matrix products of the grouped algebra and the decoder, forward and backward, nothing else.

Every measurement starts from the same weights, restored untimed: an update repeated on one batch drives the
weights to where no training goes. All candidates take turns in one process; several processes do so one after the
other, for two of them do not lay out their memory in the same way.
"""

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from caunet.nn import ContrastAssociation, Softmin
from caunet.optim import HybridOptimizer
from caunet.progress import track
from caunet.training.update import Update, can_compile

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import interleaved, merged, ratio, save, threads

BATCH, INPUTS, UNITS, RANK, HIDDEN = 100, 121, 300, 4, 100
Batch = tuple[Tensor, Tensor, Tensor]


def decoder() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(UNITS, HIDDEN), nn.PReLU(), nn.Linear(HIDDEN, HIDDEN), nn.PReLU(), nn.Linear(HIDDEN, 1)
    )


class Network(nn.Module):
    """The paper's CAN, of the package's parts."""

    def __init__(self) -> None:
        super().__init__()
        self.relation = ContrastAssociation(INPUTS, INPUTS, UNITS, rank=RANK)
        self.decoder = nn.Sequential(Softmin(), *decoder())

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.decoder(self.relation(x, y))


class Transcription(nn.Module):
    """The paper's CAN, equation (rank_one) as it is printed."""

    def __init__(self) -> None:
        super().__init__()
        self.u, self.v = (nn.Parameter(torch.rand(UNITS * RANK, INPUTS) / 11) for _ in range(2))
        self.decoder = decoder()

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        u, v = self.u, self.v
        h = 0.5 * (v.sum(1) * (a**2 @ u.T) + u.sum(1) * (b**2 @ v.T)) - (a @ u.T) * (b @ v.T)
        h = h.reshape(-1, UNITS, RANK).sum(2)
        return self.decoder(torch.softmax(-h, dim=1))


class TranscribedUpdate:
    """The multiplicative update as it is printed, and torch's default Adam."""

    def __init__(self, model: Transcription, eta: float = 0.005, eps: float = 1e-20) -> None:
        self.model, self.eta, self.eps = model, eta, eps
        self.adam = torch.optim.Adam(model.decoder.parameters(), lr=0.005)

    def __call__(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        self.model.zero_grad()
        loss = nn.functional.mse_loss(self.model(x, y), z)
        loss.backward()
        with torch.no_grad():
            for w in (self.model.u, self.model.v):
                plus = 0.5 * (w.grad.abs() + w.grad) + self.eps
                minus = 0.5 * (w.grad.abs() - w.grad) + self.eps
                w.copy_(w * (minus / plus) ** self.eta)
        self.adam.step()
        return loss.detach()


def floor() -> Callable[[], None]:
    """The matrix products of one update on ready operands: forward, and both gradients where both are needed."""
    a, b = torch.rand(2, BATCH, INPUTS) - 0.5
    terms = UNITS * RANK
    u, v, rows, columns = (torch.rand(n, INPUTS) for n in (terms, terms, UNITS, UNITS))
    layers = [
        (torch.rand(o, i), torch.rand(BATCH, i)) for o, i in ((HIDDEN, UNITS), (HIDDEN, HIDDEN), (1, HIDDEN))
    ]
    delta = {n: torch.rand(BATCH, n) for n in (terms, UNITS, HIDDEN, 1)}

    def products() -> None:
        for x, w in ((a, u), (b, v), (a, rows), (b, columns)):
            torch.mm(x, w.T)
            torch.mm(delta[len(w)].T, x)
        for w, x in layers:
            torch.mm(x, w.T)
            torch.mm(delta[len(w)].T, x)
            torch.mm(delta[len(w)], w)

    return products


def restorer(model: nn.Module) -> Callable[[], None]:
    weights = [p.detach().clone() for p in model.parameters()]

    def restore() -> None:
        with torch.no_grad():
            for p, saved in zip(model.parameters(), weights, strict=True):
                p.copy_(saved)

    return restore


def candidates(batch: Batch) -> tuple[dict[str, Callable[[], Any]], Callable[[], None], float]:
    """name -> one update, a function that restores all weights, and the seconds that compiling took."""
    x, y, z = batch
    transcription, eager, compiled = Transcription(), Network(), Network()
    updates: dict[str, Callable[..., Tensor]] = {
        "transcription": TranscribedUpdate(transcription),
        "eager": Update(eager, HybridOptimizer.for_model(eager), compile=False),
    }
    restore = [restorer(m) for m in (transcription, eager, compiled)]
    start = time.perf_counter()
    if can_compile():
        updates["compiled"] = Update(compiled, HybridOptimizer.for_model(compiled), compile=True)
        updates["compiled"](x, y, z)
    seconds = time.perf_counter() - start
    calls: dict[str, Callable[[], Any]] = {name: lambda u=u: u(x, y, z) for name, u in updates.items()}
    return {**calls, "floor": floor()}, lambda: [r() for r in restore] and None, seconds


def measure(count: int, rounds: int) -> tuple[dict[str, dict[str, Any]], float]:
    """Times of all candidates, measured in this process, and the seconds that compiling took."""
    with threads(count):
        torch.manual_seed(0)
        x, y = torch.rand(2, BATCH, INPUTS) - 0.5
        calls, restore, seconds = candidates((x, y, torch.rand(BATCH, 1) * 10 - 5))
        return interleaved(calls, rounds, warmup=5, repeat=3, before=restore), seconds


def measure_in_processes(count: int, rounds: int, processes: int) -> dict[str, Any]:
    """:func:`measure` in processes of their own, one after the other, and all rounds of them together."""
    parts = []
    with track(processes, f"{count} thread{'s' * (count > 1)}", "processes") as bar:
        for _ in range(processes):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                parts.append(pool.submit(measure, count, rounds).result())
            bar.advance()
    times = merged([part for part, _ in parts])
    pairs = [("transcription", name) for name in times if name != "transcription"]
    pairs += [(name, "floor") for name in times if name not in ("floor", "transcription")]
    return {
        "seconds": times,
        "ratios": {f"{slower} / {faster}": ratio(times, slower, faster) for slower, faster in pairs},
        "ratio_of_each_process": {
            f"{slower} / {faster}": [ratio(part, slower, faster)["median"] for part, _ in parts]
            for slower, faster in pairs
        },
        "compile_seconds": max(seconds for _, seconds in parts),
    }


def show(count: int, result: dict[str, Any]) -> None:
    print(
        f"\n{count} thread{'s' * (count > 1)}      milliseconds: median    p10    p90   best   x faster   x floor"
    )
    for name, t in result["seconds"].items():
        values = "".join(f"{1e3 * t[key]:7.2f}" for key in ("median", "p10", "p90", "best"))
        faster = result["ratios"].get(f"transcription / {name}", {}).get("median", 1.0)
        over = result["ratios"].get(f"{name} / floor", {}).get("median")
        print(
            f"{name:>30}{values}{faster:11.2f}{over:10.2f}" if over else f"{name:>30}{values}{faster:11.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--processes", type=int, default=5, help="fresh processes that measure, one after the other"
    )
    parser.add_argument(
        "--rounds", type=int, default=80, help="measurements of every candidate in each process"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    results = {}
    for count in options.threads:
        results[f"threads={count}"] = measure_in_processes(count, options.rounds, options.processes)
        show(count, results[f"threads={count}"])
    if not options.no_save:
        print(f"\nsaved to {save('update', results)}")


if __name__ == "__main__":
    main()
