"""Docstrings as Markdown: roles of reStructuredText become code or links, and doctests become blocks of code.

>>> markdown("See :func:`~caunet.estimate` and ``x``.\\n\\n>>> 1 + 1\\n2\\n\\nDone.")
'See `estimate` and ``x``.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n\\nDone.'
>>> print(markdown("Where things are\\n    a.py   one\\n    bc.py  two"))
Where things are:
<BLANKLINE>
```text
a.py   one
bc.py  two
```
<BLANKLINE>
"""

import re
import textwrap
from typing import Any

import griffe

__all__ = ["Docstrings", "markdown"]

# Indented rows below a line that ends no sentence and begins no section (Args:): columns that belong where they are.
_COLUMNS = re.compile(r"^(\S[^\n]*[^:\n])\n((?:    \S[^\n]*?\S {2,}\S[^\n]*(?:\n|\Z))+)", re.MULTILINE)
_ROLE = re.compile(r":(?:func|class|meth|mod|data|attr|exc|obj):`~?([^`<]+)`")


def markdown(text: str) -> str:
    """The docstring ``text`` with roles and doctests written as Markdown has them."""
    text = _ROLE.sub(lambda match: f"`{match[1].removeprefix('caunet.')}`", text)
    text = _COLUMNS.sub(
        lambda match: f"{match[1]}:\n\n```text\n{textwrap.dedent(match[2]).rstrip()}\n```\n", text
    )
    lines, inside, indent = [], False, ""
    for line in text.split("\n"):
        bare = line.lstrip()
        if not inside and bare.startswith(">>> "):
            inside, indent = True, line[: len(line) - len(bare)]
            lines.append(f"{indent}```pycon")
        elif inside and not bare:
            inside = False
            lines.append(f"{indent}```")
        lines.append(re.sub(r"\s+# doctest: .*$", "", line))
    if inside:
        lines.append(f"{indent}```")
    return "\n".join(lines)


class Docstrings(griffe.Extension):
    """Rewrites every docstring when griffe meets it."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None and not obj.is_alias:
            obj.docstring.value = markdown(obj.docstring.value)
