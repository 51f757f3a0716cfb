"""The reference: pages made from docstrings, from the command line's help and from the OpenAPI document."""

import contextlib
import importlib
import inspect
import io
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import caunet
from caunet.tables import Table

__all__ = ["MODULES", "command_line", "http_api", "module_page", "path_of", "public_names", "top_level"]

# The modules with public names, in the order of the story that docs/design.md tells.
MODULES = {
    "estimation": "Two images",
    "stacks": "Many images of one scene",
    "volumes": "Two volumes",
    "images": "Images from outside",
    "geometry": "Transforms and warping",
    "nn": "Relation units and competitions",
    "functional": "The equations as functions",
    "optim": "Learning rules",
    "models": "Networks",
    "tasks": "Tasks",
    "data": "Images and pairs",
    "training": "Training",
    "refinement": "Refined answers",
    "evaluation": "Evaluation",
    "metrics": "Errors",
    "baselines": "Methods without learning",
    "matching": "Matching",
    "execution": "Engines",
    "export": "ONNX",
    "errors": "Exceptions",
}


def modules() -> dict[str, Any]:
    """The modules of ``MODULES`` that this version has."""
    return {
        name: importlib.import_module(f"caunet.{name}")
        for name in MODULES
        if importlib.util.find_spec(f"caunet.{name}")
    }


def public_names() -> Iterator[tuple[str, str]]:
    """(module, name) of everything that the reference must hold."""
    for room, module in modules().items():
        for name in module.__all__:
            if not inspect.ismodule(getattr(module, name)):
                yield room, name


def module_page(room: str) -> str:
    """The page of one module: its docstring, and every public name where it is defined."""
    alone = (
        "    options:\n      members: []\n      show_root_heading: false\n      show_root_toc_entry: false\n"
    )
    parts = [f"# `caunet.{room}`\n\n*{MODULES[room]}*\n", f"::: caunet.{room}\n{alone}"]
    parts += [f"::: {path_of(room, name)}\n" for name in _sorted(modules()[room].__all__)]
    return "\n".join(parts)


def path_of(room: str, name: str) -> str:
    """Where the public ``name`` of a module is defined: ``caunet.nn.bilinear.Bilinear``."""
    value = getattr(modules()[room], name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    return f"caunet.{room}.{name}"


def _sorted(names: list[str]) -> list[str]:
    # Functions and classes before constants, as one looks for them.
    return sorted(names, key=lambda name: (name.isupper(), name.lower()))


def top_level() -> str:
    """The reference's first page: the names that ``import caunet`` gives, and the modules."""
    places = {(id(getattr(module, name))): (room, name) for room, module in modules().items()
              for name in module.__all__}  # fmt: skip
    rows = []
    for name in sorted(caunet.__all__, key=str.lower):
        value = getattr(caunet, name)
        if inspect.ismodule(value) or name == "__version__":
            continue
        rows.append([f"[`caunet.{name}`][{path_of(*places[id(value)])}]", _first_sentence(value)])
    table = Table(["name", ""], "ll", rows).markdown()
    listed = Table(
        ["module", "", "names"],
        "llr",
        [[f"[`caunet.{room}`](api/{room}.md)", MODULES[room], str(len(module.__all__))]
         for room, module in modules().items()],
    ).markdown()  # fmt: skip
    return (
        "# Reference\n\nEvery public name, from its docstring; the [command line](command-line.md), "
        "[files](files.md), the [HTTP API](http.md), and the conventions they share.\n\n"
        f"## `import caunet`\n\nThese names are one dot away:\n\n{table}\n\n## Modules\n\n{listed}\n"
    )


def _first_sentence(value: Any) -> str:
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", inspect.getdoc(value) or "")
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def command_line() -> str:
    """The help of every command, as it is printed."""
    from caunet.cli.parser import command_names

    parts = [
        "# Command line\n\nWhat `--help` prints, for every command. Exit codes: 0 done; 1 done, but not all of it; "
        "2 wrong arguments, files or data (one line says what to do); 3 done, but less sure than asked for; "
        "130 interrupted. `python -m caunet` is the same command.\n",
        f"## `caunet`\n\n```text\n{_help()}\n```\n",
    ]
    for words in command_names():
        parts.append(f"## `caunet {' '.join(words)}`\n\n```text\n{_help(*words)}\n```\n")
    return "\n".join(parts)


def _help(*words: str) -> str:
    from caunet.cli.parser import parse

    said = io.StringIO()
    before = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ |= {"COLUMNS": "80", "NO_COLOR": "1"}
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            parse([*words, "--help"]).run()  # the first help is an answer of its own
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    return "\n".join(line.rstrip() for line in said.getvalue().strip().splitlines())


def http_api() -> str:
    """The OpenAPI document as a page."""
    from caunet.web import create_app

    document = create_app().openapi()
    parts = [
        "# HTTP API",
        document["info"]["description"],
        "How to start the server, and what it promises: [the page](../web.md), [security](../security.md). "
        "A running server has this page at `/docs`, and the document itself at `/openapi.json`.",
    ]
    for path, methods in document["paths"].items():
        for method, what in methods.items():
            parts += [f"## `{method.upper()} {path}`", what.get("summary", ""), what.get("description", "")]
            parts += _request(what.get("requestBody", {}).get("content", {}))
            answers = [[code, answer["description"]] for code, answer in what["responses"].items()]
            parts.append(Table(["answer", ""], "ll", answers).markdown())
    return "\n\n".join(part for part in parts if part) + "\n"


def _request(content: dict[str, Any]) -> Iterator[str]:
    for kind, body in content.items():
        yield f"*{kind}*"
        for schema in body["schema"].get("oneOf", [body["schema"]]):
            required = schema.get("required", [])
            rows = [
                [f"`{name}`", "required" if name in required else "", _one_line(field.get("description", ""))]
                for name, field in schema["properties"].items()
            ]
            yield Table(["field", "", ""], "lll", rows).markdown()
        for example in body.get("examples", {}).values():
            yield f"{example['summary']}:\n\n```json\n{json.dumps(example['value'])}\n```"


def _one_line(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")
