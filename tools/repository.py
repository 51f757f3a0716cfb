"""Where the sources are published, if they are: ``REPOSITORY=https://example.org/caunet make dist docs``.

The checkout does not state an address: a fork has another one, and a link that leads nowhere is worse than none. Links
of the documentation and of the package's description into the repository are made with it; without it they are text.
"""

import os
import re

from caunet.errors import CaunetError

__all__ = ["linked", "repository"]

_PICTURES = (".png", ".svg", ".jpg")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)]+)\)")


def repository() -> str | None:
    """The address without a slash at its end; None if none is given."""
    address = os.environ.get("REPOSITORY", "").rstrip("/")
    if address and not re.fullmatch(r"https://[\w.~/-]+", address):
        raise CaunetError(
            f"REPOSITORY must be an address such as https://example.org/caunet, got {address!r}"
        )
    return address or None


def linked(text: str, address: str | None) -> str:
    """Markdown that stands alone: relative links lead into the repository at ``address``, pictures to their bytes.

    >>> linked("[a](docs/a.md#b) ![c](d.png) [e](https://f.org) [g](#h)", "https://x.org/y")
    '[a](https://x.org/y/blob/main/docs/a.md#b) ![c](https://x.org/y/raw/main/d.png) [e](https://f.org) [g](#h)'

    Without an address links become their text, with the file they name, and pictures go:

    >>> linked("[a](docs/a.md) [`b.py`](b.py) ![c](d.png)[e](https://f.org)", None)
    'a (docs/a.md) `b.py` [e](https://f.org)'
    """

    def made(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        if address is not None:
            kind = "raw" if target.endswith(_PICTURES) else "blob"
            return f"{picture}[{label}]({address}/{kind}/main/{target})"
        if picture:
            return ""
        return label if label.strip("`") == target else f"{label} ({target.partition('#')[0]})"

    return _LINK.sub(made, text)
