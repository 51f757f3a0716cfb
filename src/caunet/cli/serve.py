"""``caunet serve``: the page and its API on this machine."""

import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

__all__ = ["Serve"]


@dataclass(frozen=True)
class Serve:
    """Open a local page where relations can be seen, and two pictures aligned; with an API for programs.

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
    """Show the networks in this folder (MODEL-TASK.safetensors) instead of those that come with the package."""
    time_limit: float = 30.0
    """Seconds a computation may take."""

    def run(self) -> int:
        """Listen until interrupted."""
        self._check()
        create_app, uvicorn = _import()
        app = create_app(weights=self.weights, seconds=self.time_limit, warm=True)
        listening = _listen(self.host, self.port)
        url = _url(self.host, listening.getsockname()[1])
        print(f"caunet is at {url}", flush=True)
        if not _is_loopback(listening.getsockname()[0]):
            print("caunet: other machines can reach it, and there is no password", file=sys.stderr)
        if self.open:
            _open_browser(url)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,  # longer than clients do: who reuses one as it is closed sees it fail
            timeout_graceful_shutdown=3,
        )
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:  # how a server is meant to end
            pass
        finally:
            listening.close()
        return 0

    def _check(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"--port takes a number within 0..65535; got {self.port}")
        if not 0 < self.time_limit < float("inf"):
            raise ValueError(f"--time-limit takes a positive number of seconds; got {self.time_limit}")
        if self.weights is not None and not self.weights.is_dir():
            raise ValueError(f"--weights takes a folder; there is none at {self.weights}")


def _import() -> tuple[Any, Any]:
    from caunet.extras import require

    uvicorn = require("uvicorn", "web", "the page")
    for module in ("fastapi", "python_multipart"):
        require(module, "web", "the page")
    from caunet.web import create_app

    return create_app, uvicorn


def _listen(host: str, port: int) -> socket.socket:
    """Bound here rather than by uvicorn: a port in use is a message, and the URL is known before it runs."""
    from caunet.errors import CaunetError

    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
            listening.listen(128)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise CaunetError(
            f"cannot listen at {host} port {port}: {error.strerror or error}; try another --port"
        ) from error
    return listening


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
