"""Help that a reader understands: ``--out PATH`` instead of ``--out {None}|PATH``, and no ``(default: None)``.

What happens without an option is told by its own text. The parser's library offers both settings for each option; here
they are set for all options that are left out by default. It also keeps the line breaks of the source, wherever they
are; here every paragraph is one line, which it breaks where the terminal ends.
"""

import ast
import dataclasses
import inspect
import itertools
import textwrap
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

__all__ = ["plain_help"]

T = TypeVar("T", bound=type)

_WORDS = {int: "N", float: "NUMBER", str: "NAME", Path: "PATH"}
_done: set[type] = set()


def plain_help(command: T) -> T:
    """``command``, a dataclass, with the annotations of its optional fields completed, in place."""
    for kind in command.__mro__:
        if not dataclasses.is_dataclass(kind) or kind in _done:
            continue
        _done.add(kind)
        kind.__doc__ = "\n\n".join(
            " ".join(part.split()) for part in inspect.cleandoc(kind.__doc__ or "").split("\n\n")
        )
        texts = _texts(kind)
        hints = typing.get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            if field.name not in kind.__annotations__:
                continue
            hint = hints[field.name]
            if isinstance(hint, type) and dataclasses.is_dataclass(hint):
                plain_help(hint)
                continue
            settings: dict[str, Any] = {"help": texts.get(field.name)}
            if field.default is None or field.default == ():
                settings["help_behavior_hint"] = ""
            elif field.default is field.default_factory is dataclasses.MISSING and _any_number(hint):
                settings["help_behavior_hint"] = "(required)"
            kind.__annotations__[field.name] = field.type = _plain(hint, settings)
    return command


def _texts(kind: type) -> dict[str, str]:
    """What stands below each field of a dataclass in its source, on one line."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, below in itertools.pairwise(tree.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
        ):
            text = ast.literal_eval(below.value)
            found[field.target.id] = " ".join(str(text).split())
    return found


def _any_number(hint: Any) -> bool:
    """Whether it is a tuple of any length, which the library takes for optional."""
    inner = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    return typing.get_origin(inner) is tuple and Ellipsis in typing.get_args(inner)


def _plain(hint: Any, settings: dict[str, Any]) -> Any:
    """The same hint, with settings for the parser where it has none of its own."""
    inner, *notes = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    settings = {"metavar": _word(inner), **settings}
    kept = []
    for note in notes:
        if type(note).__name__ == "_ArgConfig":
            given = {field.name: getattr(note, field.name) for field in dataclasses.fields(note)}
            settings |= {name: value for name, value in given.items() if value is not None}
        else:
            kept.append(note)
    return Annotated[(inner, *kept, tyro.conf.arg(**settings))]


def _word(hint: Any) -> str | None:
    """What to type for a value of that type, in capitals."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = [part for part in parts if part is not type(None)] or [None]
        return _word(hint)
    if typing.get_origin(hint) is Literal:
        return "{" + ",".join(map(str, parts)) + "}"
    if typing.get_origin(hint) is tuple:
        words = [str(_word(part)) for part in parts if part is not Ellipsis]
        return " ".join(words) + (" ..." if Ellipsis in parts else "")
    return _WORDS.get(hint)
