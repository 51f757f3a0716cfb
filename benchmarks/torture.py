"""The long form of the tests that attack caunet: damaged files, killed processes, hours of work without growth.

    python -m benchmarks.torture                 # 10,000 damaged files of each format, an hour in all
    python -m benchmarks.torture --minutes 20    # as much of that as 20 minutes hold
    python -m benchmarks.torture --parts kills   # one part alone

The parts share the time: damaged files (the tests that use tests/attacks/harness.py, with more cases and other seeds),
training and saving killed at random moments (the bits must be those of a run that was left alone), and memory that must
not grow while images are estimated and while a server answers. With --keep, figures, machine, versions and commit are
saved to benchmarks/results/torture.json and put into docs/security.md. Exit code 0: nothing got through.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness import save

from caunet.progress import track
from caunet.reproduction.tables import fill
from caunet.tables import Table

ROOT = Path(__file__).parents[1]
SERVER = ROOT / "tools" / "soak_server.py"
GOOD = ("accepted", "refused")
FIRST_ROUND = 200  # damaged files; their speed decides how many the next round takes
GROWTH = 50e6  # bytes that a process may grow while it does the same thing over and over

Findings = list[dict[str, Any]]


def finding(part: str, name: str, count: int, failures: int, note: str = "", **more: Any) -> dict[str, Any]:
    """One line of the result: how often something was tried and how often it went wrong."""
    return {"part": part, "name": name, "count": count, "failures": failures, "note": note, **more}


def attacks(seconds: float, cases: int, seed: int) -> Findings:
    """Damaged files of every format that is read: accepted or refused in the right words, nothing else."""
    files = [path for path in sorted(ROOT.glob("tests/**/test_*.py")) if "import harness" in path.read_text()]
    files += [
        path for path in sorted(ROOT.glob("tests/**/test_*.py")) if "attacks.harness" in path.read_text()
    ]
    files = [path for path in dict.fromkeys(files) if path.stem != "test_harness"]
    counts: dict[str, Counter[str]] = {}
    said, end, done, rate = [], time.monotonic() + seconds, 0, 0.0
    with track(cases, "damaged files", "of each format") as bar:
        while files and done < cases:
            size = FIRST_ROUND if not rate else int(0.8 * rate * (end - time.monotonic()))
            size = min(size, cases - done)
            if size < FIRST_ROUND and done:
                break  # the time is used up
            start = time.monotonic()
            lines, output = _attack_round(files, size, seed + 1_000_003 * done)
            for line in lines:
                counts.setdefault(line["name"], Counter()).update(line["counts"])
            said += [output] if output else []
            rate = size / (time.monotonic() - start)
            done += size
            bar.advance(size)
    result = []
    for name, found in sorted(counts.items()):
        total, good = sum(found.values()), sum(found[outcome] for outcome in GOOD)
        note = ", ".join(f"{found[outcome]:,} {outcome}" for outcome in sorted(found))
        result.append(finding("damaged files", name, total, total - good, note, outcomes=dict(found)))
    if said:
        result.append(finding("damaged files", "tests that failed", len(said), len(said), said[0][-2000:]))
    return result


def _attack_round(files: list[Path], cases: int, seed: int) -> tuple[list[dict[str, Any]], str]:
    """Run the tests once; the counts of each attack, and what pytest said if any failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.jsonl"
        environment = os.environ | {
            "CAUNET_ATTACK_CASES": str(cases),
            "CAUNET_ATTACK_SEED": str(seed),
            "CAUNET_ATTACK_REPORT": str(report),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--tb=short", *map(str, files)]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        lines = report.read_text().splitlines() if report.exists() else []
    return [json.loads(line) for line in lines], run.stdout if run.returncode else ""


def _train(folder: Path, flushes: int | None, said: Path) -> None:
    """Train in ``folder``, dying at the ``flushes``-th file written to disk; an error is written to ``said``."""
    from tests.training import small

    try:
        small.run(folder) if flushes is None else small.run_and_die(folder, flushes)
    except BaseException as error:
        said.write_text(f"{type(error).__name__}: {error}")
        raise


def _same(one: Path, other: Path) -> bool:
    """Whether two weight files hold the same tensors, bit for bit."""
    from safetensors.torch import load_file

    first, second = (
        {name: (t.dtype, tuple(t.shape), t.numpy().tobytes()) for name, t in load_file(path).items()}
        for path in (one, other)
    )
    return first == second


def kills(seconds: float, seed: int) -> Findings:
    """A small training run, killed at random moments or while it saves, ends with the bits of one left alone."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.small"])
    chance, died, wrong = random.Random(seed), Counter[str](), []

    def attempt(run: Path, flushes: int | None = None, limit: float | None = None) -> bool:
        """Whether the run has finished."""
        said = run.parent / "error"
        said.unlink(missing_ok=True)
        process = context.Process(target=_train, args=(run, flushes, said))
        process.start()
        process.join(limit)
        if process.is_alive():
            process.kill()
            process.join()
        if process.exitcode == -signal.SIGKILL:
            died["while training" if flushes is None else "while saving"] += 1
        elif process.exitcode != 0:
            wrong.append(said.read_text() if said.exists() else f"exit code {process.exitcode}")
        return process.exitcode == 0

    runs, usual = 0, 0.0
    with tempfile.TemporaryDirectory() as name, track(None, "kills", "of a training run") as bar:
        whole = Path(name) / "whole1" / "weights.safetensors"
        for number in range(2):  # the first also starts the server of processes
            start = time.monotonic()
            attempt(Path(name) / f"whole{number}")
            usual = time.monotonic() - start
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            run = Path(name) / f"run{runs}"
            for _ in range(chance.randrange(1, 8)):
                if chance.random() < 0.3:
                    attempt(run, flushes=chance.randrange(1, 40))
                else:
                    attempt(run, limit=chance.uniform(0, usual))
                bar.advance()
            attempt(run)
            runs += 1
            if not (run / "weights.safetensors").exists():
                wrong.append("no weights")
            elif not _same(run / "weights.safetensors", whole):
                wrong.append("other bits")
            shutil.rmtree(run, ignore_errors=True)
    note = ", ".join(
        [*(f"{died[kind]} {kind}" for kind in sorted(died)), f"{runs} runs compared", *wrong[:3]]
    )
    return [
        finding("kills", "training runs", sum(died.values()), len(wrong), note, runs=runs, kills=dict(died))
    ]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _soak_estimate(seconds: float, seed: int) -> dict[str, Any]:
    """Estimate pair after pair; how much the process grew after the first fifty."""
    import torch

    from caunet import Estimator
    from caunet.benchmark import draw_pair

    torch.set_num_threads(1)
    estimator, end, count, start = Estimator("projective"), time.monotonic() + seconds, 0, 0
    while time.monotonic() < end or count < 60:
        pair = draw_pair("test", "clean", 0.1, count % 50, seed=seed, side=128 + 16 * (count % 5))
        estimator(pair.a.numpy(), pair.b.numpy())
        count += 1
        if count == 50:
            start = _resident()
    return {"count": count, "growth": _resident() - start, "resident": _resident()}


def soak_estimate(seconds: float, seed: int) -> Findings:
    """Memory of a process that estimates for a long time."""
    with (
        track(None, "soak: estimate"),
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        found = pool.submit(_soak_estimate, seconds, seed).result()
    note = f"{found['growth'] / 1e6:+.1f} MB, {found['resident'] / 1e6:.0f} MB at the end"
    failures = int(found["growth"] > GROWTH)
    return [finding("soak", "estimate", found["count"], failures, note, growth=found["growth"])]


def soak_server(seconds: float, seed: int) -> Findings:
    """Memory and answers of a server under load, by tools/soak_server.py."""
    if not SERVER.exists():
        return []
    with tempfile.TemporaryDirectory() as folder, track(None, "soak: server"):
        out = Path(folder) / "soak.json"
        command = [
            sys.executable,
            "-m",
            "tools.soak_server",
            "--minutes",
            f"{seconds / 60:.3f}",
            "--json",
            str(out),
        ]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        found = json.loads(out.read_text()) if out.exists() else {}
    failures = int(found.get("failures", 0)) or int(run.returncode != 0)
    note = found.get("note", "") if not failures else (found.get("note") or run.stderr[-1000:])
    return [finding("soak", "server", int(found.get("count", 0)), failures, note, **{"server": found})]


# Shares of the time: damaged files need the most.
PARTS: dict[str, float] = {"attacks": 0.5, "kills": 0.2, "estimate": 0.15, "server": 0.15}


def torture(minutes: float, cases: int, parts: list[str], seed: int) -> dict[str, Any]:
    """Run the parts one after the other, each within its share of the time."""
    total, left = sum(PARTS[part] for part in parts), 60 * minutes
    results: Findings = []
    start = time.monotonic()
    for part in parts:
        share = (left - (time.monotonic() - start)) * PARTS[part] / total
        total -= PARTS[part]
        share = max(share, 1.0)
        if part == "attacks":
            results += attacks(share, cases, seed)
        else:
            results += {"kills": kills, "estimate": soak_estimate, "server": soak_server}[part](share, seed)
    spent = (time.monotonic() - start) / 60
    return {"minutes": round(spent, 1), "seed": seed, "passed": passed(results), "results": results}


def passed(results: Findings) -> bool:
    """Whether something was tried and nothing got through."""
    return bool(results) and not any(found["failures"] for found in results)


def table(results: dict[str, Any]) -> Table:
    """What was tried, how often, and what got through."""
    rows = [
        [found["part"], found["name"], f"{found['count']:,}", f"{found['failures']:,}", found["note"]]
        for found in results["results"]
    ]
    return Table(["part", "what", "tried", "got through", "outcome"], "llrrl", rows, wrap=["outcome"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--cases", type=int, default=10_000, help="damaged files of each format, at most")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument(
        "--seed", type=int, default=int(time.time()) % 1_000_000, help="default: another each time"
    )
    parser.add_argument("--keep", action="store_true", help="save results and fill docs/security.md")
    options = parser.parse_args()
    from rich.console import Console

    results = torture(options.minutes, options.cases, options.parts, options.seed)
    Console(width=max(140, Console().width)).print(table(results).rich())
    print(
        f"{results['minutes']:.1f} minutes, seed {results['seed']}:",
        "passed" if results["passed"] else "FAILED",
    )
    if options.keep:
        print("saved to", save("torture", results))
        document = ROOT / "docs" / "security.md"
        if document.exists() and "<!-- torture:begin -->" in document.read_text(encoding="utf-8"):
            about = f"{results['minutes']:.0f} minutes, seed {results['seed']}."
            fill(document, f"{table(results).markdown()}\n\n{about}", section="torture")
    return 0 if results["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
