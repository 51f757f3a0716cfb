"""``caunet serve``: the page and its API on this machine."""

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated

import tyro

from caunet.extras import require

__all__ = ["Serve"]


@dataclass(frozen=True)
class Serve:
    """Open a local page that shows what the networks infer and aligns two images; with an API for programs.

    Only this machine can reach it unless --host says otherwise. Nothing is stored, nothing is fetched from elsewhere.
    Ctrl-C ends it.

    Example: caunet serve --open
    """

    host: str = "127.0.0.1"
    """The address to listen at; 0.0.0.0 lets other machines in (there is no password)."""
    port: int = 8000
    """The port; 0 takes a free one."""
    open: bool = False
    """Open the page in the browser."""
    weights: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """The directory of a run, whose network is shown in the place of the package's for its task; or a folder of
    networks (MODEL-TASK.safetensors) that are shown instead."""
    time_limit: float = 30.0
    """Seconds a computation may take, and four times as many for volumes; then it is stopped."""
    allowed_host: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME")] = ()
    """Host names by which browsers may reach it, beside localhost and --host (behind a proxy, its public name)."""

    def run(self) -> int:
        """Listen until interrupted."""
        self._check()
        web = _import()
        app = web.app.create_app(
            weights=self.weights,
            seconds=self.time_limit,
            allowed_hosts=(self.host, *self.allowed_host),
            warm=True,
        )
        listening = web.server.listen(self.host, self.port)
        url = _url(self.host, listening.getsockname()[1])
        print(f"caunet is at {url}", flush=True)
        if not _is_loopback(listening.getsockname()[0]):
            print("caunet: other machines can reach it, and there is no password", file=sys.stderr)
        if self.open:
            _open_browser(url)
        try:
            web.server.Server(app, before_end=app.state.computations.close).run(sockets=[listening])
        except KeyboardInterrupt:  # how a server is meant to end
            pass
        finally:
            listening.close()
            app.state.computations.close()
        return 0

    def _check(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"--port must be within 0..65535, got {self.port}")
        if not 0 < self.time_limit < float("inf"):
            raise ValueError(f"--time-limit must be a positive number of seconds, got {self.time_limit}")
        if self.weights is not None and not self.weights.is_dir():
            raise ValueError(f"--weights must be a folder, and there is none at {self.weights}")


def _import() -> ModuleType:
    """caunet.web, or the name of the extra that brings what it needs."""
    for module in ("fastapi", "uvicorn", "h11", "python_multipart"):
        require(module, "web", "caunet serve")
    import caunet.web.app
    import caunet.web.server

    return caunet.web


def _url(host: str, port: int) -> str:
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _open_browser(url: str) -> None:
    """In a thread: some browsers do not return. The socket is listening already, so the browser will wait."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
