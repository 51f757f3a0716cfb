"""The subcommands, each in a file of its own that is imported when it is asked for.

``caunet --help`` and wrong commands are answered here, without the parser's library and without torch: in a moment.
"""

import functools
import importlib
import json
import operator
import os
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

import caunet
from caunet.registry import IMPORT, import_named, nearest

__all__ = ["COMMANDS", "Command", "command_names", "parse"]

_ABOUT = """Estimate the transformation between two images, and train the networks that do it.

Start with `caunet estimate a.png b.png --overlay overlay.png` (two images of your own),
with `caunet demo` (five minutes: two images aligned, three networks trained and compared)
or with `caunet data show --task rotation --out sample.png` (the pairs they are trained on)."""

_MORE = """`caunet COMMAND --help` explains a command; `caunet --version` prints the version.
With any command, `--import MODULE` imports a module that registers tasks, units or networks of your own.
Tab completion: `caunet --tyro-write-completion bash FILE` (or zsh, tcsh)."""

# name: (module:class, or a module whose COMMANDS are the subcommands; what it is for)
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo:Demo", "see what caunet does, in five minutes"),
    "estimate": ("estimate:EstimateCommand", "the transformation between two images"),
    "estimate-many": ("estimate_many:EstimateManyCommand", "the same for many pairs, into one file"),
    "align": ("align:Align", "a stack or a video brought into one common frame"),
    "serve": ("serve:Serve", "a page in the browser, and an API for programs"),
    "train": ("train:Train", "train one network on one task"),
    "train-matcher": ("train_matcher:TrainMatcher", "train the network that matches places"),
    "evaluate": ("evaluate:Evaluate", "errors of a trained network on test pairs"),
    "models": ("models:Models", "the networks and their variants"),
    "weights": ("weights", "networks that come with the package: list, pack, upgrade; prune any"),
    "export": ("export:Export", "a network as an ONNX file"),
    "data": ("data", "images and pairs: fetch, show, count"),
    "reproduce": ("reproduce:Reproduce", "the paper's tables, trained here"),
    "bench": ("bench", "registration beside other methods, on known pairs"),
}


class Command(Protocol):
    """What every subcommand is: arguments that can be run."""

    def run(self) -> int:
        """Do it and return the exit code."""
        ...


def parse(arguments: Sequence[str]) -> Command:
    """The subcommand that ``arguments`` ask for; wrong ones end the program with code 2 and a message."""
    arguments = _import_modules(arguments)
    if arguments in ([], ["--help"], ["-h"]):
        return _Said(_help())
    if arguments == ["--version"]:
        return _Said(f"caunet {caunet.__version__}")
    name, *rest = arguments
    if name.startswith("--tyro-"):  # completion needs all of them
        return _tyro(_everything(), "caunet", arguments)
    if name not in COMMANDS:
        _refuse("caunet", name, COMMANDS)
    kind = _kind(name, rest)
    if isinstance(kind, Mapping):
        if rest and not rest[0].startswith("-") and rest[0] not in kind:
            _refuse(f"caunet {name}", rest[0], kind)
        kind = _union(kind)
    return _tyro(kind, f"caunet {name}", rest or (["--help"] if name in _GROUPS else []))


_GROUPS = {name for name, (place, _) in COMMANDS.items() if ":" not in place}


def _kind(name: str, arguments: Sequence[str]) -> Any:
    """The class of a command, or the classes of its subcommands by name."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = importlib.import_module(f"caunet.cli.{module}")
    if not attribute:
        return found.COMMANDS
    return getattr(found, attribute)


def _refuse(command: str, word: str, known: Mapping[str, Any]) -> NoReturn:
    """Wrong arguments, as the parser treats them: one line, exit code 2."""
    what = "an option" if word.startswith("-") else "a command"
    raise ValueError(
        f"{word!r} is not {what} of {command}{nearest(word, known)}; there are {', '.join(known)}"
    )


def _help() -> str:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {about}" for name, (_, about) in COMMANDS.items())
    return f"usage: caunet COMMAND ...\n\n{_ABOUT}\n\ncommands:\n{listed}\n\n{_MORE}"


def _tyro(kind: Any, prog: str, arguments: Sequence[str]) -> Command:
    import tyro

    from caunet.cli.help_texts import plain_help

    options: dict[str, Any] = {}
    if isinstance(kind, type):
        plain_help(kind)
        if hasattr(
            kind, "for_profile"
        ):  # a profile, model and task that are named decide the defaults that help shows
            named = (_named(arguments, option) for option in ("--profile", "--model", "--task"))
            options["default"] = kind.for_profile(*named)
    command: Command = tyro.cli(
        kind,
        prog=prog,
        args=list(arguments),
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
        registry=_registry(),
        console_outputs=os.environ.get("RANK", "0") == "0",  # under torchrun one process speaks
        **options,
    )
    return command


def _everything() -> Any:
    """The whole tree, for completion."""
    from typing import Annotated

    import tyro

    members: list[Any] = []
    for name, (_, about) in COMMANDS.items():
        kind = _kind(name, [])
        whole = _union(kind) if isinstance(kind, Mapping) else kind
        members.append(Annotated[whole, tyro.conf.subcommand(name, description=about)])
    return functools.reduce(operator.or_, members)


def _import_modules(arguments: Sequence[str]) -> list[str]:
    """Import what ``--import`` names, and return the other arguments. Worker processes are told, too."""
    left, wanted = [], []
    words = iter(arguments)
    for word in words:
        if word == "--import" or word.startswith("--import="):
            value = word.partition("=")[2] or next(words, "")
            if not value or value.startswith("-"):
                raise ValueError("--import must be followed by the name of a module, such as my_units")
            wanted += value.split(",")
        else:
            left.append(word)
    if wanted:
        for module in wanted:
            import_named(module)
        known = filter(None, os.environ.get(IMPORT, "").split(","))
        os.environ[IMPORT] = ",".join(dict.fromkeys([*known, *wanted]))
    return left


def command_names() -> list[tuple[str, ...]]:
    """Every command, as it is typed: ``("estimate",)``, ``("data", "fetch")``."""
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        kind = _kind(name, [])
        found += [(name, inner) for inner in kind] if isinstance(kind, Mapping) else [(name,)]
    return found


def _union(commands: Mapping[str, type]) -> Any:
    from typing import Annotated

    import tyro

    from caunet.cli.help_texts import plain_help

    named = [
        Annotated[plain_help(kind), tyro.conf.subcommand(name, description=_first_sentence(kind))]
        for name, kind in commands.items()
    ]
    return functools.reduce(operator.or_, named)


def _first_sentence(kind: type) -> str:
    return (kind.__doc__ or "").strip().split("\n\n")[0]


def _named(arguments: Sequence[str], option: str) -> str | None:
    """The value of ``option`` in ``arguments``, written as ``--option value`` or ``--option=value``."""
    for word, following in zip(arguments, [*arguments, None][1:], strict=True):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return None


def _registry() -> Any:
    """Options that are JSON objects, such as ``--model-options '{"bias": false}'``."""
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

    registry = ConstructorRegistry()

    @registry.primitive_rule
    def mapping(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if typing.get_origin(info.type) is not Mapping:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="JSON",
            instance_from_str=lambda words: _object(words[0]),
            is_instance=lambda value: isinstance(value, Mapping),
            str_from_instance=lambda value: [json.dumps(value)],
        )

    return registry


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"must be JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object such as '{{\"bias\": false}}', got {text}")
    return value


class _Said:
    """An answer that needs no command: help, the version."""

    def __init__(self, text: str) -> None:
        self.text = text

    def run(self) -> int:
        print(self.text)
        return 0
