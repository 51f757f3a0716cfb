"""Optional dependencies: one way to import them, one error that names the extra to install.

The core of caunet needs torch, NumPy, Pillow, safetensors and what the command line is made of. Everything else is
imported where it is used, through :func:`require`.
"""

import importlib
from types import ModuleType

from caunet.errors import MissingExtraError

__all__ = ["require"]


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import ``module``, or say which extra brings it.

    Args:
        module: name of the module, as in an import statement.
        extra: the extra of caunet that installs it.
        purpose: what it is needed for, as the subject of the sentence in the error.

    >>> require("math", "report", "Arithmetic").sqrt(4)
    2.0
    >>> require("no_such_module", "report", "This figure")
    Traceback (most recent call last):
        ...
    caunet.errors.MissingExtraError: This figure needs no_such_module: pip install 'caunet[report]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # it is installed, and something that it needs itself is not
        raise MissingExtraError(module.split(".")[0], extra, purpose) from None
