"""The application: routes, and one form for everything that goes wrong.

Nothing is stored: bodies, images and answers live in memory while a request is answered, volumes also in a temporary
file for as long as they are read. No request can name a path or an address for the server to read.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Annotated, Any

import fastapi
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import caunet
from caunet import tasks
from caunet.errors import CaunetError
from caunet.estimation.motion_models import motion_model_names
from caunet.web import bodies, documentation, infer_route, schemas
from caunet.web.jobs import Computations
from caunet.web.limits import MAX_BODY, BodyLimit, KnownHostsOnly, OwnPagesOnly, StrictHeaders
from caunet.web.networks import NETWORKS, TASKS, Networks
from caunet.web.patches import PHOTOGRAPHS, photograph, photograph_png, photograph_thumbnail
from caunet.web.refusals import MISTAKE, UNAVAILABLE, Refused

__all__ = ["create_app"]

_logger = logging.getLogger("uvicorn.error")
STATIC = Path(__file__).parent / "static"
_VOLUMES = 4  # times as many bytes and seconds as pictures may have
_ABOUT = (
    "Estimates the transformation between two images. Everything is computed here, and nothing is stored."
)


class _App(FastAPI):
    """FastAPI inside of the limits, so that they hold for its own errors too."""

    max_body: int = MAX_BODY
    allowed_hosts: tuple[str, ...] = ()

    def build_middleware_stack(self) -> ASGIApp:
        limited = BodyLimit(
            super().build_middleware_stack(), limit=self.max_body, larger={"/api/volumes": _VOLUMES}
        )
        return StrictHeaders(KnownHostsOnly(OwnPagesOnly(limited), allowed=self.allowed_hosts))


def create_app(
    *,
    weights: Path | None = None,
    workers: int | None = None,
    queue: int | None = None,
    seconds: float = 30.0,
    max_body: int = MAX_BODY,
    allowed_hosts: Iterable[str] = (),
    warm: bool = False,
) -> FastAPI:
    """The page and its API as an ASGI application.

    Args:
        weights: a folder of ``MODEL-TASK.safetensors``; the networks that come with the package if not given.
        workers: computations at once, each in a process; as many as cores if not given.
        queue: requests that may wait for a worker; four times the workers if not given.
        seconds: the time limit of a computation.
        max_body: largest body of a request in bytes.
        allowed_hosts: host names that requests may be addressed to, beside localhost and the server's address.
        warm: start the workers and load all networks and photographs at the start, not with the first request.
    """
    options = {"weights": None if weights is None else str(weights.resolve()), "warm": warm}
    computations = Computations(
        "caunet.web.answers:setup", options, workers=workers, queue=queue, seconds=seconds
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if warm:
            computations.start()
        yield
        app.state.computations.close()

    app = _App(
        title="caunet",
        version=caunet.__version__,
        description=_ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.max_body, app.allowed_hosts = max_body, tuple(allowed_hosts)
    app.state.computations = computations
    _add_errors(app)
    _add_api(app, Networks(weights))
    _add_computing(app)
    _add_page(app)
    return app


def _add_page(app: FastAPI) -> None:
    app.mount("/static", StaticFiles(directory=STATIC, check_dir=False), "static")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(documentation.render(app.openapi()))


def _add_api(app: FastAPI, networks: Networks) -> None:
    @app.get("/healthz", response_model=schemas.Health, summary="Whether the server answers")
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
            404: {"model": schemas.Problem, "description": "There is no photograph of that name."},
            422: {"model": schemas.Problem, "description": "Never."},
        },
    )
    def embedded(name: Annotated[str, fastapi.Path(examples=list(PHOTOGRAPHS)[:2])]) -> Response:
        if name not in PHOTOGRAPHS:
            raise HTTPException(
                404, f"There is no photograph of that name; there are {', '.join(PHOTOGRAPHS)}."
            )
        return Response(photograph_png(name), media_type="image/png")

    @app.get("/api/thumbnails/{name}.jpg", include_in_schema=False)
    def thumbnail(name: str) -> Response:
        if name not in PHOTOGRAPHS:
            raise HTTPException(404, "There is no photograph of that name.")
        return Response(photograph_thumbnail(name), media_type="image/jpeg")


def _add_computing(app: FastAPI) -> None:
    """Routes whose bodies are handed to a worker as they are: nothing of them is parsed in this process."""

    async def compute(request: Request, name: str, times: int = 1) -> Response:
        kind = request.headers.get("content-type", "")
        answer = await request.app.state.computations.run(name, kind, await request.body(), times)
        return Response(answer.content, answer.status, media_type="application/json")

    @app.post(
        "/api/infer",
        response_model=schemas.InferAnswer,
        responses=schemas.ERRORS,
        summary="What the networks infer from two patches",
        description=infer_route.ABOUT,
        openapi_extra=bodies.infer_body([tasks.get(name) for name in TASKS], list(PHOTOGRAPHS)),
    )
    async def infer(request: Request) -> Response:
        return await compute(request, "infer")

    @app.post(
        "/api/estimate",
        response_model=schemas.EstimateAnswer,
        responses=schemas.ERRORS,
        summary="How two images are related",
        description="matrix maps points of a to points of b, in pixels: x right, y down, pixel centers at integers.",
        openapi_extra=bodies.estimate_body(motion_model_names(without_options=True)),
    )
    async def estimate(request: Request) -> Response:
        return await compute(request, "estimate")

    @app.post(
        "/api/stack",
        response_model=schemas.StackAnswer,
        responses=schemas.ERRORS,
        summary="Where the frames of a stack lie in the first",
        description="2 to 24 frames of one size, sides of at most 320 pixels; matrices map each into the first.",
        openapi_extra=bodies.stack_body(),
    )
    async def stack(request: Request) -> Response:
        return await compute(request, "stack")

    @app.post(
        "/api/volumes",
        response_model=schemas.VolumesAnswer,
        responses=schemas.ERRORS,
        summary="How two volumes are related",
        description="NIfTI, MetaImage (.mha) or NRRD of at most 256 x 256 x 256 voxels, 40 MB together.\n\n"
        "matrix maps voxels (x, y, z) of a to those of b, matrix_mm millimeters, as space counts them.",
        openapi_extra=bodies.volumes_body(),
    )
    async def volumes(request: Request) -> Response:
        return await compute(request, "volumes", _VOLUMES)

    @app.post(
        "/api/volumes/example",
        response_model=schemas.VolumesAnswer,
        responses=schemas.ERRORS,
        summary="The same for two volumes that are made up, whose motion is known",
        openapi_extra=bodies.volumes_body(files=False),
    )
    async def volumes_example(request: Request) -> Response:
        return await compute(request, "volumes/example")

    @app.post(
        "/api/picture",
        response_model=schemas.PictureAnswer,
        responses=schemas.ERRORS,
        summary="An image as a PNG, for browsers that cannot show it",
        openapi_extra=bodies.picture_body(),
    )
    async def picture(request: Request) -> Response:
        return await compute(request, "picture")


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
        "motion_models": list(motion_model_names(without_options=True)),
        "photographs": [
            {
                "name": name,
                "width": shape[1],
                "height": shape[0],
                "url": f"/api/photographs/{name}.png",
                "thumbnail": f"/api/thumbnails/{name}.jpg",
            }
            for name, shape in shapes.items()
        ],
        "pretrained": {name: list(networks.available(name)) for name in TASKS},
    }


def _add_errors(app: FastAPI) -> None:
    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        headers = None if error.retry is None else {"Retry-After": str(error.retry)}
        return JSONResponse({"detail": error.detail}, error.status, headers)

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind = {404: "There is nothing at this address.", 405: "This address does not accept that method."}
        plain = error.detail in ("Not Found", "Method Not Allowed")
        detail = kind.get(error.status_code, error.detail) if plain else error.detail
        return JSONResponse({"detail": detail}, error.status_code, error.headers)

    async def unavailable(_: Request, error: Exception) -> Response:
        _logger.error("%s", error)
        return JSONResponse({"detail": UNAVAILABLE}, 503)

    async def mistake(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": MISTAKE}, 500)

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(CaunetError, unavailable)
    app.add_exception_handler(Exception, mistake)
