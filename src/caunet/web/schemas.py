"""What goes in and out of the API: checked by pydantic, described by OpenAPI."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

__all__ = [
    "ERRORS",
    "EstimateAnswer",
    "Health",
    "InferAnswer",
    "InferRequest",
    "ModelsAnswer",
    "PictureAnswer",
    "Problem",
    "StackAnswer",
    "VolumesAnswer",
    "complaint",
]

TaskName = Literal["translation", "rotation", "scaling", "affine", "projective"]
Row = Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=11, max_length=11)]
Patch = Annotated[list[Row], Field(min_length=11, max_length=11)]
Point = Annotated[list[float], Field(min_length=2, max_length=2)]
Corners = Annotated[list[Point], Field(min_length=4, max_length=4)]


class InferRequest(BaseModel):
    """A place in a photograph and z, or two patches. :mod:`caunet.web.bodies` describes it by these same fields."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    task: Annotated[TaskName, Field(description="What relates the patches.")]
    z: Annotated[list[float], Field(min_length=1, max_length=6)] | None = None
    photograph: Annotated[str, Field(max_length=40, description="An embedded photograph.")] | None = None
    x: (
        Annotated[
            float,
            Field(
                ge=0, le=511, description="The patch's center: column, in pixels of the photograph as shown."
            ),
        ]
        | None
    ) = None
    y: Annotated[float, Field(ge=0, le=511, description="The patch's center: row.")] | None = None
    zoom: Annotated[
        int,
        Field(ge=1, le=16, description="How many pixels of the photograph make one of the patch, per side."),
    ] = 4
    first: Annotated[Patch, Field(description="11 rows of 11 gray levels.")] | None = None
    second: Annotated[Patch, Field(description="Likewise.")] | None = None
    refine: Annotated[
        bool, Field(description="Also refine each answer by least squares on the two patches.")
    ] = False


class Problem(BaseModel):
    """What is wrong, in a sentence."""

    detail: str


class Health(BaseModel):
    """That the server answers."""

    status: Literal["ok"]
    version: str


class Parameter(BaseModel):
    """A number of z."""

    name: str
    low: float
    high: float
    unit: str
    step: float


class TaskAnswer(BaseModel):
    """A task and its parameters, in the order of z."""

    name: str
    parameters: list[Parameter]


class PhotographAnswer(BaseModel):
    """An embedded photograph; places are pixels of this size."""

    name: str
    width: int
    height: int
    url: str
    thumbnail: str


class ModelsAnswer(BaseModel):
    """What the API offers."""

    tasks: list[TaskAnswer]
    networks: list[str]
    motion_models: list[str]
    photographs: list[PhotographAnswer]
    pretrained: dict[str, list[str]]


class Inferred(BaseModel):
    """An estimate of z; ``error`` is the mean distance of the corners to the true ones, in pixels."""

    z: list[float]
    corners: Corners | None
    error: float | None


class NetworkAnswer(Inferred):
    """What a network inferred, and what least squares make of that, if it was asked for."""

    refined: Inferred | None


class Term(BaseModel):
    """A rank-one term of a unit: its weights on the first and on the second patch, largest 1."""

    u: list[list[float]]
    v: list[list[float]]


class Winner(Term):
    """The unit that won, with u and v summed over its terms."""

    index: int
    terms: list[Term]


class InferAnswer(BaseModel):
    """Patches, answers, and a look inside CAN. Corners are (x, y) in pixels of the second patch."""

    task: TaskName
    truth: list[float] | None
    first: list[list[float]]
    second: list[list[float]]
    networks: dict[str, NetworkAnswer]
    truth_corners: Corners | None
    responses: list[float]
    order: Annotated[
        list[int], Field(description="CAN's units by the value of the first parameter that they prefer.")
    ]
    usual: Annotated[
        list[float], Field(description="Their mean responses, over pairs of the embedded photographs.")
    ]
    winner: Winner | None
    confidence: Annotated[float, Field(ge=0, le=1)]
    milliseconds: float


class EstimateAnswer(BaseModel):
    """How b is related to a; ``matrix`` maps points of a to points of b, in pixels."""

    model_config = ConfigDict(extra="allow")

    model: str
    matrix: list[list[float]]
    confidence: Annotated[float, Field(ge=0, le=1)]
    confidence_words: str
    words: str
    parameters: dict[str, float]
    size_a: list[int]
    size_b: list[int]
    matches: int
    inliers: int
    seconds: float
    field: dict[str, Any]
    aligned_png: Annotated[
        str, Field(description="b resampled onto a, a PNG in base64, sides of at most 1600 pixels")
    ]
    milliseconds: float


class FrameProblem(BaseModel):
    """A frame without an answer."""

    frame: int
    reason: str


class StackAnswer(BaseModel):
    """Where every frame lies in the first; ``matrices`` map points of a frame into it, in pixels."""

    model: str
    matrices: list[list[list[float]] | None]
    confidence: list[float]
    size: Annotated[list[int], Field(description="Of the frames: [height, width].")]
    relations: int
    problems: list[FrameProblem]
    milliseconds: float


class Shown(BaseModel):
    """The grid that two volumes are shown on: cubes, axes to the left, to the back and to the head."""

    size: Annotated[list[int], Field(description="[depth, height, width].")]
    spacing: Annotated[float, Field(description="Of its voxels, in millimeters.")]
    columns: Annotated[int, Field(description="Slices beside each other in the pictures.")]


class VolumesAnswer(BaseModel):
    """How volume b is related to volume a, and both on one grid, slices side by side in PNGs in base64."""

    model_config = ConfigDict(extra="allow")

    model: str
    matrix: list[list[float]]
    matrix_mm: list[list[float]]
    space: str
    confidence: Annotated[float, Field(ge=0, le=1)]
    confidence_words: str
    words: str
    parameters: dict[str, float]
    size_a: Annotated[list[int], Field(description="[depth, height, width].")]
    size_b: Annotated[list[int], Field(description="[depth, height, width].")]
    seconds: float
    shown: Shown
    first_png: Annotated[str, Field(description="a.")]
    before_png: Annotated[str, Field(description="b where its header puts it.")]
    after_png: Annotated[str, Field(description="b, aligned with a.")]
    error: Annotated[
        float | None, Field(description="Mean distance of the corners to the true ones in voxels, if known.")
    ]
    milliseconds: float


class PictureAnswer(BaseModel):
    """An image as a PNG."""

    png: Annotated[str, Field(description="The image upright, a PNG in base64.")]
    size: Annotated[list[int], Field(description="Of the original: [height, width].")]
    factor: Annotated[int, Field(description="How many times shorter its sides have been made.")]
    milliseconds: float


_RETRY = {
    "Retry-After": {"schema": {"type": "string"}, "description": "Seconds to wait before asking again."}
}
ERRORS: dict[int | str, dict[str, Any]] = {
    408: {"model": Problem, "description": "The body took too long to arrive."},
    413: {
        "model": Problem,
        "description": "The body is larger than 10 MB (volumes: 40 MB), or needs too much memory.",
    },
    422: {"model": Problem, "description": "Not an image (or volume), too many pixels, or a bad value."},
    503: {"model": Problem, "description": "All workers are busy and the queue is full.", "headers": _RETRY},
    504: {"model": Problem, "description": "The computation took longer than its time limit."},
}


def complaint(error: ValidationError) -> str:
    """The first thing that is wrong, in one sentence that names the field."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    message = str(first["msg"]).rstrip(".")
    message = message[:1].lower() + message[1:]
    place = [str(part) for part in first["loc"]]
    if not place:
        return f"The body cannot be read: {message}."
    name = place[0] + "".join(f"[{part}]" for part in place[1:] if part.isdigit())
    if first["type"] == "extra_forbidden":
        return f"{name[:40]!r} is not a field of this request."
    if first["type"] == "missing":
        return f"{name} is missing."
    return f"{name}: {message}."
