"""``caunet evaluate``: errors of a trained network on test pairs, beside methods that learn nothing."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

__all__ = ["Evaluate"]

_DEFAULTS: dict[str, Any] = {"protocol": "text", "test_split": "test", "per_image": 10}
_DATA = {2: "photos", 3: "shapes3"}


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained network: parameter, transformation and corner error on fixed test pairs.

    A run's own task, protocol and data are taken unless others are given; one of the package is measured on photos.

    One of the package: caunet evaluate can-rotation --pairs 10000

    Your own: caunet evaluate runs/can-rotation-text-seed0 --baselines --figure errors.png
    """

    network: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NETWORK")]
    """A network of the package (can-rotation; `caunet weights list` names them), the directory of a run, or a file of
    weights (.safetensors)."""
    task: str | None = None
    """The task; default: the one the network was made for."""
    protocol: Literal["text", "release"] | None = None
    """How pairs are made: as the paper writes (text) or as its authors' scripts did (release)."""
    data: str | None = None
    """Images: photos, cifar10, or a directory; for tasks of volumes shapes3, or a directory of volumes."""
    skip_bad: bool = False
    """Leave out the images of a directory that cannot be read, instead of stopping."""
    split: str | None = None
    """Which of the images."""
    pairs: int | None = None
    """Stop after so many pairs; default: all."""
    batch: int = 2000
    """Pairs at a time; bounds the memory."""
    refine: bool = False
    """Also measure the network's answers made precise by least squares on the two patches; same pairs."""
    baselines: bool = False
    """Also measure predict-the-mean, exhaustive search and OpenCV's ECC, where they apply; same pairs."""
    json: bool = False
    """Print JSON (with histograms) instead of a table."""
    figure: Path | None = None
    """Draw corner errors and predictions against truth into this file (png, svg or pdf)."""
    device: str = "cpu"
    """Where to compute."""

    def run(self) -> int:
        """Measure and print."""
        from caunet import tasks
        from caunet.data import PairSource, load_images
        from caunet.data.photometric import Photometric
        from caunet.evaluation import evaluate
        from caunet.models.places import find_network, load_network

        place = find_network(self.network)
        config = dict(place.settings)
        if place.name is not None:  # its card names the images it was trained on, which need not be here
            config.pop("data", None)
        model = load_network(self.network, device=self.device)
        settings = self._settings(config)
        task = self.task or config.get("task") or model.spec["task"]
        dimensions = tasks.get(task).dimensions
        settings["data"] = self.data or config.get("data") or _DATA[dimensions]
        images = load_images(
            settings["data"], split=settings["test_split"], dimensions=dimensions, skip_bad=self.skip_bad
        )
        patch, dim = model.spec["patch"], model.spec["dim"]
        source = PairSource(
            images,
            task,
            settings["protocol"],
            patch=patch,
            per_image=settings["per_image"],
            photometric=Photometric.from_json(light) if (light := config.get("photometric")) else None,
            device=self.device,
        )
        if source.task.dim != dim:
            raise ValueError(f"task {task} has {source.task.dim} parameters, this network infers {dim}")
        results = {
            name: evaluate(predictor, source, batch=self.batch, limit=self.pairs, predictions=True)
            for name, predictor in self._predictors(model, source).items()
        }
        about = {"network": str(self.network), "data": settings["data"], "split": images.split}
        self._print(results, about, sizes(model))
        return 0

    def _settings(self, config: dict[str, Any]) -> dict[str, Any]:
        given = {"protocol": self.protocol, "test_split": self.split}
        known = {name: config.get(name, default) for name, default in _DEFAULTS.items()}
        return {**known, **{name: value for name, value in given.items() if value is not None}}

    def _predictors(self, model: Any, source: Any) -> dict[str, Any]:
        name = model.spec["name"]
        found: dict[str, Any] = {name: model}
        if self.refine:
            from caunet.refinement import refined

            if source.task.dimensions != 2:
                raise ValueError(f"--refine must be used with a task of the plane, got {source.task.name}")
            if source.protocol == "release" and source.task.name != "translation":
                raise ValueError(
                    "--refine must be used with the protocol text: pairs of release have a shift that no parameter "
                    "stands for"
                )
            found[f"{name}, refined"] = refined(model, source.task, rows_first=source.rows_first)
        return {**found, **self._baselines(source)}

    def _baselines(self, source: Any) -> dict[str, Any]:
        if not self.baselines:
            return {}
        from caunet.baselines import baselines_for

        return dict(baselines_for(source))

    def _print(
        self, results: dict[str, dict[str, Any]], about: dict[str, str], counts: dict[str, int]
    ) -> None:
        if self.figure is not None:
            from caunet.cli.evaluate_figure import draw

            draw(results, self.figure)
        if self.json:
            print(json.dumps({**about, **counts, "results": results}, indent=2, allow_nan=False))
            return
        _show(results, about)
        print(say_sizes(counts))
        if self.figure is not None:
            print(f"figure  {self.figure}")


def sizes(model: Any) -> dict[str, int]:
    """Numbers that a network has learned, how many of them are not zero, and multiply-adds a pair without zeros."""
    return {
        "parameters": model.parameter_count(),
        "nonzero": model.nonzero_count(),
        "multiply_adds": model.multiply_adds(sparse=True),
    }


def say_sizes(counts: dict[str, int]) -> str:
    """The same in a line.

    >>> say_sizes({"parameters": 330703, "nonzero": 49214, "multiply_adds": 58216})
    '49,214 of 330,703 weights are not zero; 58,216 multiply-adds a pair'
    """
    weights = f"{counts['nonzero']:,} of {counts['parameters']:,} weights are not zero"
    return f"{weights}; {counts['multiply_adds']:,} multiply-adds a pair"


def _show(results: dict[str, dict[str, Any]], about: dict[str, str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    first = next(iter(results.values()))
    where = f"{about['data']}, {about['split']} images"
    title = f"{first['task']} ({first['protocol']} protocol), {first['count']:,} pairs of {where}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    table.add_column("error of", no_wrap=True)
    columns = ("parameter", "transform.", "corner px", "median", "90 %")
    for column in columns:
        table.add_column(column, justify="right")
    for name, errors in results.items():
        corner = errors["corner_error"]
        numbers = [errors["parameter_error"], errors["transformation_error"], *corner.values()]
        table.add_row(name, *map(_number, numbers))
    console = Console()
    console.print(table)
    console.print(_per_parameter(results))


def _per_parameter(results: dict[str, dict[str, Any]]) -> Any:
    from rich import box
    from rich.table import Table

    first = next(iter(results.values()))
    title = "mean squared error (and R²) of each parameter"
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    table.add_column("", no_wrap=True)
    for name in first["per_parameter"]:
        table.add_column(name, justify="right")
    for name, errors in results.items():
        each = errors["per_parameter"].values()
        table.add_row(name, *(f"{_number(one['error'], 2)} ({_ratio(one['r2'])})" for one in each))
    table.add_row(
        "always the mean", *(_number(one["error_of_mean"], 2) for one in first["per_parameter"].values())
    )
    return table


def _number(value: float | None, digits: int = 4) -> str:
    return "not finite" if value is None else f"{value:.{digits}g}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
