"""Pruned weights in files: a tensor that is mostly zeros is stored as the places and values of its other entries.

``NAME`` becomes ``NAME.index`` (int32, places in the flattened tensor, in order) and ``NAME.value``; the file's
metadata names the shapes. What is read is checked before it is expanded: a small file must not make a large network.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from caunet.errors import CheckpointError

__all__ = ["compress", "expand"]

# Below this share of non-zero entries places and values take less space than the tensor, in half precision too.
_WORTH = 0.25
# Numbers in all expanded tensors of a file: 200 times the paper's largest network.
_MOST = 1 << 27


def compress(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, list[int]]]:
    """The tensors of a file, and the shapes of those that are stored by their non-zero entries.

    >>> stored, shapes = compress({"u": torch.tensor([[0.0, 0.0, 5.0], [0.0, 0.0, 0.0]]), "b": torch.ones(2)})
    >>> sorted(stored), shapes
    (['b', 'u.index', 'u.value'], {'u': [2, 3]})
    >>> expand("memory", stored, shapes)["u"]
    tensor([[0., 0., 5.],
            [0., 0., 0.]])
    """
    stored: dict[str, Tensor] = {}
    shapes: dict[str, list[int]] = {}
    for name, tensor in tensors.items():
        few = tensor.is_floating_point() and int(tensor.count_nonzero()) < _WORTH * tensor.numel()
        if not few or tensor.numel() > torch.iinfo(torch.int32).max:
            stored[name] = tensor
            continue
        flat = tensor.detach().flatten()
        index = flat.nonzero().flatten()
        stored[f"{name}.index"], stored[f"{name}.value"] = index.to(torch.int32), flat[index]
        shapes[name] = list(tensor.shape)
    return stored, shapes


def expand(source: object, stored: Mapping[str, Tensor], shapes: Any) -> dict[str, Tensor]:
    """The tensors that :func:`compress` was given; CheckpointError for anything it cannot have made."""
    if not isinstance(shapes, dict) or not all(_is_shape(shape) for shape in shapes.values()):
        raise CheckpointError(f"{source}: sparse must hold shapes by name, got {str(shapes)[:80]}")
    total = sum(math.prod(shape) for shape in shapes.values())
    if total > _MOST:
        raise CheckpointError(f"{source}: sparse tensors must have at most {_MOST:,} entries, got {total:,}")
    tensors = dict(stored)
    for name, shape in shapes.items():
        index, value = tensors.pop(f"{name}.index", None), tensors.pop(f"{name}.value", None)
        if index is None or value is None or name in tensors:
            raise CheckpointError(f"{source}: {name} must be stored by its places and values, once")
        _check(source, name, index, value, math.prod(shape))
        dense = value.new_zeros(math.prod(shape))
        dense[index.long()] = value
        tensors[name] = dense.view(shape)
    return tensors


def _is_shape(shape: Any) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) <= 4
        and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= _MOST for n in shape)
    )


def _check(source: object, name: str, index: Tensor, value: Tensor, size: int) -> None:
    fits = (
        index.dtype == torch.int32
        and value.is_floating_point()
        and index.ndim == value.ndim == 1
        and len(index) == len(value)
    )
    if not fits:
        raise CheckpointError(f"{source}: {name} must have as many places (int32) as values (floating point)")
    places = index.long()
    if len(places) and (places[0] < 0 or places[-1] >= size or bool((places.diff() <= 0).any())):
        raise CheckpointError(f"{source}: places of {name} must ascend from 0 to {size - 1}")
