"""Things known by name, to which others may add: one form of lookup, of refusal, and of message.

>>> colors: Registry[int] = Registry("color")
>>> colors.register("green", 0x00FF00)
65280
>>> colors.lookup("gren")
Traceback (most recent call last):
...
ValueError: color must be one of green; got 'gren' (did you mean 'green'?)
"""

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from caunet.errors import CaunetError

__all__ = ["IMPORT", "Registry", "check_choice", "import_named", "nearest", "register_class"]

IMPORT = "CAUNET_IMPORT"
"""The environment variable that names modules, with commas between them, that register what they define."""

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """Values by name, in the order they were registered.

    Args:
        kind: what the values are, for messages.
        group: of entry points. A name that nobody has registered is looked for there, and in the modules that
            ``CAUNET_IMPORT`` names; they are imported then, and not before.
    """

    def __init__(self, kind: str, group: str | None = None) -> None:
        self.kind, self.group = kind, group
        self._values: dict[str, T] = {}
        self._complete = group is None

    def register(self, name: str, value: T, *, replace: bool = False) -> T:
        """Make ``value`` known as ``name`` and return it; an existing name is refused unless ``replace``."""
        if not isinstance(name, str) or not name:
            raise ValueError(f"name must be a non-empty string, got {name!r}")
        if name in self._values and not replace:
            raise ValueError(f"a {self.kind} named {name!r} exists; pass replace=True to replace it")
        self._values[name] = value
        return value

    def unregister(self, name: str) -> None:
        """Forget ``name``, as tests and notebooks want to."""
        del self._values[name]

    def lookup(self, name: str) -> T:
        """The value of that name; ValueError names the others."""
        if name not in self:
            check_choice(self.kind, name, self._values)
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._values and not self._complete:
            self._discover(name)
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        if not self._complete:
            self._discover(None)
        return iter(self._values)

    def _discover(self, wanted: object) -> None:
        """Import what may register more names. A package that fails disturbs only those who ask for its name."""
        self._complete = True  # first: what is imported asks this registry, too
        for module in filter(None, os.environ.get(IMPORT, "").split(",")):
            import_named(module)
        for point in entry_points(group=self.group or ""):
            try:
                import_named(point.module)
            except CaunetError:
                if point.name == wanted:
                    self._complete = False
                    raise

    def __len__(self) -> int:
        return len(self._values)


def import_named(module: str) -> None:
    """Import ``module`` from what is installed or from the current folder; CaunetError says why it cannot be."""
    if not {"", here := str(Path.cwd())} & set(sys.path):
        sys.path.append(here)
    try:
        importlib.import_module(module)
    except Exception as error:  # anything may be wrong in a module of someone else
        raise CaunetError(f"cannot import {module}: {type(error).__name__}: {error}") from error


def register_class(
    registry: Registry[Any], base: type, name: str, cls: C | None, replace: bool
) -> C | Callable[[C], C]:
    """Make a subclass of ``base`` known by ``name``, and return it; without ``cls``, the decorator that does so."""

    def add(cls: C) -> C:
        if not (isinstance(cls, type) and issubclass(cls, base)):
            home = f"{base.__module__.rpartition('.')[0]}.{base.__name__}"
            raise TypeError(f"cls must be a subclass of {home}, got {cls!r}")
        registry.register(name, cls, replace=replace)
        return cls

    return add if cls is None else add(cls)


def check_choice(field: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a ``value`` that is not among ``choices``, naming them and the nearest."""
    choices = list(choices)
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"{field} must be one of {', '.join(choices)}; got {value!r}{nearest(value, choices)}"
        )


def nearest(value: object, choices: Iterable[str]) -> str:
    """A hint at the choice that ``value`` is most like, or nothing."""
    found = difflib.get_close_matches(str(value), list(choices), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""
