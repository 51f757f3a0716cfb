"""The application: routes, and one form for everything that goes wrong.

Nothing is stored: bodies, pictures and answers live in memory while a request is answered. No request can name a path
or an address for the server to read.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

import fastapi
import torch
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import caunet
from caunet import tasks
from caunet.errors import CaunetError
from caunet.estimation.estimator import Estimator
from caunet.estimation.result import MODELS
from caunet.web import bodies, documentation, infer_route, schemas
from caunet.web.inference import infer
from caunet.web.jobs import BusyError, Computations, TooLongError
from caunet.web.limits import MAX_BODY, BodyLimit, OwnPagesOnly, StrictHeaders
from caunet.web.networks import NETWORKS, TASKS, Networks
from caunet.web.patches import PATCH, PHOTOGRAPHS, gray_photograph, photograph, photograph_png
from caunet.web.registration import relate
from caunet.web.uploads import FieldError, read_form

__all__ = ["create_app"]

STATIC = Path(__file__).parent / "static"
_ABOUT = "Learn how two images are related, and tell. Everything is computed here, and nothing is stored."


class _App(FastAPI):
    """FastAPI inside of the limits, so that they hold for its own errors too."""

    max_body: int = MAX_BODY

    def build_middleware_stack(self) -> ASGIApp:
        limited = BodyLimit(super().build_middleware_stack(), limit=self.max_body)
        return StrictHeaders(OwnPagesOnly(limited))


def create_app(
    *,
    weights: Path | None = None,
    workers: int | None = None,
    queue: int | None = None,
    seconds: float = 30.0,
    max_body: int = MAX_BODY,
    warm: bool = False,
) -> FastAPI:
    """The page and its API as an ASGI application.

    Args:
        weights: a folder of ``MODEL-TASK.safetensors``; the networks that come with the package if not given.
        workers: computations at once; as many as cores if not given.
        queue: requests that may wait for a place; four times the workers if not given.
        seconds: the time limit of a computation.
        max_body: largest body of a request in bytes.
        warm: load all networks and photographs at the start, so that the first request is as fast as any.
    """
    computations, networks = Computations(workers, queue, seconds), Networks(weights)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(computations.run(_warm, networks)) if warm else None
        yield
        if warming is not None:
            warming.cancel()
        computations.close()

    app = _App(
        title="caunet",
        version=caunet.__version__,
        description=_ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.max_body = max_body
    app.state.computations = computations
    _add_errors(app)
    _add_api(app, networks)
    _add_computing(app, networks, computations)
    _add_page(app)
    return app


def _warm(networks: Networks) -> None:
    """Everything that is loaded once, and used once; what cannot be loaded is told to whoever asks for it."""
    with contextlib.suppress(CaunetError, ValueError):
        for name in PHOTOGRAPHS:
            photograph(name)
        patch = torch.from_numpy(gray_photograph("astronaut")[:PATCH, :PATCH].copy()) / 255
        for task in TASKS:
            infer(networks, tasks.get(task), patch, patch)
        picture = photograph("astronaut")[:128, :128]
        Estimator()(picture, picture)  # the first computation of a process is far slower than the others


def _add_page(app: FastAPI) -> None:
    app.mount("/static", StaticFiles(directory=STATIC, check_dir=False), "static")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(documentation.render(app.openapi()))


def _add_api(app: FastAPI, networks: Networks) -> None:
    @app.get("/healthz", response_model=schemas.Health, summary="Is it there?")
    async def healthz() -> Response:
        return JSONResponse({"status": "ok", "version": caunet.__version__})

    @app.get("/api/models", response_model=schemas.ModelsAnswer, summary="Tasks, networks, photographs")
    def models() -> Response:
        return JSONResponse(_models(networks))

    @app.get(
        "/api/photographs/{name}.png",
        summary="An embedded photograph, sides of at most 512 pixels",
        response_class=Response,
        responses={
            200: {"content": {"image/png": {}}, "description": "The photograph."},
            404: {"model": schemas.Problem, "description": "There is none of that name."},
            422: {"model": schemas.Problem, "description": "Never."},
        },
    )
    def picture(name: Annotated[str, fastapi.Path(examples=list(PHOTOGRAPHS)[:2])]) -> Response:
        if name not in PHOTOGRAPHS:
            raise HTTPException(
                404, f"There is no photograph of that name; there are {', '.join(PHOTOGRAPHS)}."
            )
        return Response(photograph_png(name), media_type="image/png")


def _add_computing(app: FastAPI, networks: Networks, computations: Computations) -> None:
    @app.post(
        "/api/infer",
        response_model=schemas.InferAnswer,
        responses=schemas.ERRORS,
        summary="What the networks infer from two patches",
        description=infer_route.ABOUT,
        openapi_extra=bodies.infer_body([tasks.get(name) for name in TASKS], list(PHOTOGRAPHS)),
    )
    async def infer_endpoint(request: Request) -> Response:
        question = await infer_route.read(request)
        return JSONResponse(await computations.run(infer_route.answer, question, networks))

    @app.post(
        "/api/estimate",
        response_model=schemas.EstimateAnswer,
        responses=schemas.ERRORS,
        summary="How two pictures are related",
        description="matrix maps points of a to points of b, in pixels: x right, y down, centres at whole numbers.",
        openapi_extra=bodies.estimate_body(MODELS),
    )
    async def estimate(request: Request) -> Response:
        form = await read_form(request, files=("a", "b"), fields=("model",))
        return JSONResponse(await computations.run(relate, form))


def _models(networks: Networks) -> dict[str, Any]:
    def parameters(task: tasks.Task) -> list[dict[str, Any]]:
        rows = zip(task.names, task.low, task.high, task.units, strict=True)
        return [
            {"name": name, "low": low, "high": high, "unit": unit, "step": (high - low) / 100}
            for name, low, high, unit in rows
        ]

    shapes = {name: photograph(name).shape for name in PHOTOGRAPHS}
    return {
        "tasks": [{"name": name, "parameters": parameters(tasks.get(name))} for name in TASKS],
        "networks": list(NETWORKS),
        "photographs": [
            {"name": name, "width": shape[1], "height": shape[0], "url": f"/api/photographs/{name}.png"}
            for name, shape in shapes.items()
        ],
        "pretrained": {name: list(networks.available(name)) for name in TASKS},
    }


def _add_errors(app: FastAPI) -> None:
    def says(status: int, text: Callable[[Any], str], headers: dict[str, str] | None = None) -> Any:
        async def handler(_: Request, error: Exception) -> Response:
            return JSONResponse({"detail": text(error)}, status, headers)

        return handler

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind = {404: "There is nothing at this address.", 405: "This address does not take that method."}
        plain = error.detail in ("Not Found", "Method Not Allowed")
        detail = kind.get(error.status_code, error.detail) if plain else error.detail
        return JSONResponse({"detail": detail}, error.status_code, error.headers)

    busy = "All places are taken; try again in a moment."
    seconds = app.state.computations.seconds
    too_long = f"This took longer than {seconds:g} s; try smaller pictures."
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(FieldError, says(422, str))
    app.add_exception_handler(ValidationError, says(422, schemas.complaint))
    app.add_exception_handler(BusyError, says(503, lambda _: busy, {"Retry-After": "1"}))
    app.add_exception_handler(TooLongError, says(504, lambda _: too_long))
    app.add_exception_handler(
        Exception, says(500, lambda _: "The server made a mistake; its log says which.")
    )
