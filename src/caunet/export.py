"""Networks for other programs: one ONNX file with its weights inside, for any number of pairs.

    x (batch, patch, patch) ─┐
                             ├─▶ network.onnx ─▶ z (batch, dim)          opset 18, float32
    y (batch, patch, patch) ─┘

What the network is (its spec) and what its answer means (task, names of z) are stored in the file's metadata. Needs the
extra: ``pip install caunet[export]``.
"""

import contextlib
import copy
import json
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from caunet import tasks
from caunet.errors import CaunetError
from caunet.extras import require
from caunet.files import atomic_write
from caunet.models import RelationNetwork

__all__ = ["OPSET", "ExportError", "check_onnx", "export_onnx", "read_metadata"]

OPSET = 18
RTOL, SHARE = 1e-3, 1e-4
"""How closely ONNX Runtime must agree with torch: relative to each answer, plus a share of the largest one. Both sum
float32 numbers, each in its own order, and an answer near zero is a difference of large numbers."""

_NEEDED = ("onnx", "onnxscript", "onnxruntime")


class ExportError(CaunetError):
    """A network cannot be exported, or its file gives other answers than the network."""


def export_onnx(model: RelationNetwork, path: str | os.PathLike[str], *, check: bool = True) -> None:
    """Write ``model`` to ``path`` (``*.onnx``), whole or not at all.

    Inputs are ``x`` and ``y``, (batch, patch, patch) float32 in [-0.5, 0.5] as in training; the output is ``z``
    (batch, dim), in the units of the task. The model itself is not changed.

    Args:
        model: a network, on any device and of any precision; the file has float32.
        check: run the file on 100 pairs before it is put in place, and refuse it if its answers differ from the
            model's.
    """
    if not isinstance(model, RelationNetwork):
        raise TypeError(f"model must be a RelationNetwork, got {type(model).__name__}")
    path = Path(path)
    if path.suffix != ".onnx":
        raise ValueError(f"path must be a file name ending in .onnx, got {str(path)!r}")
    _need()
    network = copy.deepcopy(model).to("cpu", torch.float32).eval()
    content = _describe(_translate(network), network).SerializeToString()
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
        if check:
            check_onnx(network, temporary)


def check_onnx(model: RelationNetwork, path: str | os.PathLike[str], pairs: int = 100) -> float:
    """The largest difference between the file's answers and the model's; ExportError if it is too large.

    The pairs are noise, in one batch of 1 and one of the rest, so that a file made for one size only is detected.
    """
    _need()
    import onnxruntime

    session = onnxruntime.InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])
    model = copy.deepcopy(model).to("cpu", torch.float32).eval()
    generator, shape = torch.Generator().manual_seed(0), model.model_spec.patch_shape
    x, y = (torch.rand(pairs, *shape, generator=generator) - 0.5 for _ in range(2))
    # Half of the pairs are similar, as real ones are: there the matching errors nearly cancel.
    y[::2] = (x[::2] + 0.05 * y[::2]).clamp(-0.5, 0.5)
    with torch.no_grad():
        ours = model(x, y)
    theirs = torch.cat([_run(session, x[:1], y[:1]), _run(session, x[1:], y[1:])])
    if not torch.allclose(theirs, ours, rtol=RTOL, atol=SHARE * float(ours.abs().max())):
        worst = float((theirs - ours).abs().max())
        raise ExportError(f"the exported network and the model differ by up to {worst:.3g}")
    return float((theirs - ours).abs().max())


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What :func:`export_onnx` wrote about the network: ``spec``, ``task``, ``names`` of z, ``caunet`` version."""
    _need()
    import onnx

    try:
        stored = {entry.key: entry.value for entry in onnx.load(os.fspath(path)).metadata_props}
        return {**stored, "spec": json.loads(stored["spec"]), "names": json.loads(stored["names"])}
    except FileNotFoundError:
        raise ExportError(f"no network at {path}") from None
    except Exception as error:  # protobuf has its own kinds of errors
        raise ExportError(f"{path} is not a network that caunet exported: {error}") from error


def _need() -> None:
    for name in _NEEDED:
        require(name, "export", "Exporting")


def _translate(network: RelationNetwork) -> Any:
    """The network as an ONNX model, its batch of any size."""
    shape = network.model_spec.patch_shape
    # Three pairs: a batch of one would be taken for a constant.
    x, y = torch.zeros(3, *shape), torch.ones(3, *shape)
    batch = torch.export.Dim("batch")
    try:
        with _quietly():
            program = torch.onnx.export(
                network,
                (x, y),
                dynamo=True,
                opset_version=OPSET,
                input_names=["x", "y"],
                output_names=["z"],
                dynamic_shapes=({0: batch}, {0: batch}),
                verbose=False,
            )
    except Exception as error:  # a custom f may hold anything
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ExportError(f"torch cannot translate this network to ONNX: {reason}") from error
    assert program is not None
    return program.model_proto


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's own log messages and warnings."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _describe(proto: Any, network: RelationNetwork) -> Any:
    """The ONNX model with its description in its metadata."""
    import onnx

    import caunet

    spec = network.model_spec
    try:
        names = list(tasks.get(spec.task).names)
    except ValueError:  # a task that is not registered here
        names = [f"z{k + 1}" for k in range(spec.dim)]
    proto.producer_name, proto.producer_version = "caunet", caunet.__version__
    proto.doc_string = (
        f"{spec.name} for {spec.task}: x and y are patches of {' x '.join(map(str, spec.patch_shape))} pixels, "
        f"bytes / 255 - 0.5; z holds {', '.join(names)}"
    )
    metadata = {
        "format": "caunet-onnx-1",
        "caunet": caunet.__version__,
        "spec": json.dumps(network.spec, sort_keys=True),
        "task": spec.task,
        "names": json.dumps(names),
    }
    del proto.metadata_props[:]
    onnx.helper.set_model_props(proto, metadata)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _run(session: Any, x: Tensor, y: Tensor) -> Tensor:
    return torch.from_numpy(session.run(["z"], {"x": x.numpy(), "y": y.numpy()})[0])
