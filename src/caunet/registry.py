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
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

__all__ = ["Registry", "check_choice", "nearest", "register_class"]

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """Values by name, in the order they were registered.

    Args:
        kind: what the values are, for messages.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._values: dict[str, T] = {}

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
        check_choice(self.kind, name, self._values)
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


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
