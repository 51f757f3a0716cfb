"""Put the measured speeds of benchmarks/results into docs/speed.md, between its markers.

python -m benchmarks.readme
"""

import json
from pathlib import Path
from typing import Any

from caunet.reproduction.tables import fill
from caunet.tables import Table

ROOT = Path(__file__).parents[1]


def measured(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def show(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['p25']:.2f} to {ratio['p75']:.2f})"


def table() -> str:
    """Ratios, one and two threads: median, and quartiles in brackets."""
    update, training = measured("update"), measured("training")
    rows = {
        "one update, eager: times as fast": "transcription / eager",
        "one update, compiled: times as fast": "transcription / compiled",
        "one update, compiled: times the bare matrix products": "compiled / floor",
    }
    body = [
        [label, *(show(update[f"threads={n}"]["ratios"][key]) for n in (1, 2))] for label, key in rows.items()
    ]
    faster = (show(training[f"threads_{n}"]["times_faster"]) for n in (1, 2))
    body.append(["training, pairs included: times as fast", *faster])
    machine = update["environment"]
    return (
        Table(["", "1 thread", "2 threads"], "lrr", body).markdown()
        + f"\n\n{machine['cpu']} ({machine['capability']}), {machine['cores']} cores, torch {machine['torch']}."
    )


if __name__ == "__main__":
    changed = fill(ROOT / "docs" / "speed.md", table(), section="speed")
    print("docs/speed.md", "updated" if changed else "was up to date")
