"""The local page and its API: ``caunet serve``, or ``create_app()`` for any ASGI server. Extra ``web``."""

from caunet.web.app import create_app

__all__ = ["create_app"]
