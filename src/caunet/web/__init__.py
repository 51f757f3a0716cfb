"""The local page and its API: ``caunet serve``, or ``create_app()`` for any ASGI server. Extra ``web``."""

from typing import Any

__all__ = ["create_app"]


def __getattr__(name: str) -> Any:
    # On first use: workers import parts of this package, and need neither FastAPI's routes nor their cost.
    if name == "create_app":
        from caunet.web.app import create_app

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
