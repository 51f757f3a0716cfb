"""``caunet models``: which networks there are, and how large."""

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Models", "sizes"]

REMARK = """\
The paper calls its three networks essentially equal in size. With the layers of its Table I,
CTN has about 691,000 weights and BLN and CAN have about 331,000
({ctn:,} and {can:,} here, with biases and PReLUs); can-600, bln-600, can-wide and
bln-wide are of about CTN's size."""


@dataclass(frozen=True)
class Models:
    """List the networks by name, with parameters and multiply-adds for one pair."""

    task: str = "rotation"
    """The task decides the width of the last layer."""
    patch: int | None = None
    """Side of the patches; default 11 pixels, for a task of volumes 7 voxels."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Print the table."""
        from caunet import tasks

        task = tasks.get(self.task)
        patch = self.patch or task.default_patch
        rows = sizes(self.task, patch)
        if self.json:
            print(json.dumps(rows, indent=2))
            return 0
        pixels = "pixels" if task.dimensions == 2 else "voxels"
        _show(
            rows,
            f"Networks for {self.task}, patches of {' x '.join([str(patch)] * task.dimensions)} {pixels}",
        )
        if task.dimensions == 2:
            counts = {row["name"]: row["parameters"] for row in rows}
            print(REMARK.format(ctn=counts["ctn"], can=counts["can"]))
        return 0


def sizes(task: str, patch: int) -> list[dict[str, Any]]:
    """Name, parameters, multiply-adds for one pair, learning rule and purpose of every network."""
    from caunet.models import create_model, describe_model, list_models

    rows = []
    for name in list_models():
        model = create_model(name, task, patch, seed=0)
        rows.append(
            {
                "name": name,
                "parameters": model.parameter_count(),
                "multiply_adds": model.multiply_adds(),
                "learning_rule": model.learning_rule,
                "about": describe_model(name)["about"],
            }
        )
    return rows


def _show(rows: list[dict[str, Any]], title: str) -> None:
    from rich.console import Console

    from caunet.tables import Table

    table = Table(
        ["name", "parameters", "multiply-adds", "what it is"],
        "lrrl",
        [[row["name"], f"{row['parameters']:,}", f"{row['multiply_adds']:,}", row["about"]] for row in rows],
        title=title,
        wrap=["what it is"],
    )
    Console().print(table.rich())
