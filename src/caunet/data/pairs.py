"""Pairs of patches (x, y) and the z that relates them, made from images or volumes at the speed of tensors.

A pair is a function of (seed, split, epoch, index) and of the images, the task and the protocol: whoever makes it,
alone or in a batch of any size, gets the same bits. See docs/pairs.md for what is computed.

>>> images = torch.arange(3 * 32 * 32).remainder(251).view(3, 32, 32).to(torch.uint8)
>>> source = PairSource(images, "rotation", pairs="fresh")
>>> len(source)
30
>>> x, y, z = source.batch(0, torch.tensor([4, 17]))
>>> x.shape, y.shape, z.shape
(torch.Size([2, 11, 11]), torch.Size([2, 11, 11]), torch.Size([2, 1]))
>>> bool((source.batch(0, torch.tensor([17])).y[0] == y[1]).all())
True
"""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from caunet import tasks
from caunet.data import keys, lookup, photometric, protocols
from caunet.data.images import ImageSet, fingerprint
from caunet.data.keys import Stream
from caunet.progress import track

__all__ = ["ORDERS", "PairSource", "Pairs"]

ORDERS = ("shuffled", "contiguous")
_CHUNK = 4096  # pairs planned at once (keys, z, maps: many small operations)
_BLOCK = 1 << 16  # pixels read at once: their float64 positions stay in the processor's cache


class Pairs(NamedTuple):
    """First patches x and second patches y, (B, patch, patch[, patch]) in [-0.5, 0.5], and z (B, dim)."""

    x: Tensor
    y: Tensor
    z: Tensor


class PairSource(IterableDataset[Pairs]):
    """Pairs of patches from images, for one task and protocol; from volumes, for a task in space.

    Args:
        images: an `ImageSet`, or bytes (N, height, width), of volumes (N, depth, height, width).
        task: a `Task` or its name.
        protocol: ``"text"`` or ``"release"``.
        patch: side of the patches; None: 11 pixels, 7 voxels.
        pairs: ``"fixed"``, N * per_image pairs made once and kept as bytes, the same in every epoch; or
            ``"fresh"``, made when asked for, new in every epoch.
        per_image: pairs per image; pair i is of image i // per_image.
        seed: key of everything random here.
        split: ``"train"``, ``"validation"`` or ``"test"``: part of the key, so that pairs to measure on have other z
            than pairs to learn from, whatever the seed. None: that of the `ImageSet`; ``"train"`` for a tensor.
        photometric: changes of light, noise and blur (`Photometric`); None for none.
        device: where pairs are made and kept (that of the images).
        dtype: of what comes out. Everything is computed in float64 and rounded to bytes first.

    It is a ``torch.utils.data.IterableDataset``: a ``DataLoader`` gives the pairs of one epoch in a shuffled order,
    each once, however many workers make them. As samplers of torch do, it is told the epoch by :meth:`set_epoch`.

    >>> images = torch.arange(3 * 32 * 32).remainder(251).view(3, 32, 32).to(torch.uint8)
    >>> source = PairSource(images, "rotation", pairs="fresh")
    >>> loader = torch.utils.data.DataLoader(source, batch_size=10)
    >>> for epoch in range(2):
    ...     source.set_epoch(epoch)
    ...     print([tuple(x.shape) for x, y, z in loader])
    [(10, 11, 11), (10, 11, 11), (10, 11, 11)]
    [(10, 11, 11), (10, 11, 11), (10, 11, 11)]
    """

    def __init__(
        self,
        images: ImageSet | Tensor,
        task: tasks.Task | str,
        protocol: str = "text",
        *,
        patch: int | None = None,
        pairs: str = "fixed",
        per_image: int = 10,
        seed: int = 0,
        split: str | None = None,
        photometric: photometric.Photometric | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.images = images
        self._pixels = _checked(images.pixels if isinstance(images, ImageSet) else images)
        if pairs not in ("fixed", "fresh"):
            raise ValueError(f"pairs must be 'fixed' or 'fresh', got {pairs!r}")
        if per_image < 1:
            raise ValueError(f"per_image must be 1 or more, got {per_image}")
        if not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating type, got {dtype}")
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed must be an integer in [0, 2^64), got {seed}")
        if split is None:
            split = images.split if isinstance(images, ImageSet) else "train"
        self.split = split
        self._streams = {purpose: keys.stream_of(purpose, self.split) for purpose in Stream}
        self.task = tasks.get(task)
        patch = self.task.default_patch if patch is None else patch
        self.pair_protocol = protocols.get(protocol, self.task, self.size, patch)
        self.protocol, self.patch, self.pairs = protocol, patch, pairs
        self.per_image, self.seed, self.photometric, self.dtype = per_image, seed, photometric, dtype
        self.device = torch.device(device) if device is not None else self._pixels.device
        self._pixels = self._pixels.to(self.device)
        self.epoch = 0
        self._centers: Tensor | None = None
        self._padded: Tensor | None = None
        self._fixed: tuple[Tensor, Tensor, Tensor] | None = None
        self._order: tuple[int, Tensor] | None = None

    def __len__(self) -> int:
        return len(self._pixels) * self.per_image

    def __repr__(self) -> str:
        made = f"{len(self)} {self.pairs} pairs of {'x'.join(map(str, self.patch_shape))}"
        return f"PairSource({self.task.name}, {self.protocol}: {made}, seed {self.seed})"

    def set_epoch(self, epoch: int) -> None:
        """Which epoch iterating gives: another order, and of fresh pairs other ones."""
        if epoch < 0:
            raise ValueError(f"epoch must be 0 or more, got {epoch}")
        self.epoch = epoch

    def __iter__(self) -> Iterator[Pairs]:
        """The pairs of this epoch one by one, shuffled; in a worker of a ``DataLoader``, its share of them."""
        worker = get_worker_info()
        order = self._permutation(self.epoch)
        if worker is not None:
            order = order[worker.id :: worker.num_workers]
        for part in _slices(len(order), _CHUNK):
            for x, y, z in zip(*self.batch(self.epoch, order[part]), strict=True):
                yield Pairs(x, y, z)

    def __getitem__(self, index: int) -> Pairs:
        """Pair number ``index``, where pairs are fixed; fresh ones have a number in each epoch: :meth:`batch`."""
        if self.pairs != "fixed":
            raise TypeError("pairs must be 'fixed' to be indexed; of fresh pairs take batch(epoch, index)")
        if not -len(self) <= index < len(self):
            raise IndexError(f"index must be within {len(self)} pairs, got {index}")
        x, y, z = self.batch(0, torch.tensor([index % len(self)]))
        return Pairs(x[0], y[0], z[0])

    def batch(self, epoch: int, index: Tensor) -> Pairs:
        """The pairs numbered ``index`` (B,) int64 of ``epoch`` (which ``fixed`` pairs do not depend on)."""
        return self._to_float(*self.bytes(epoch, index))

    def bytes(self, epoch: int, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same pairs as they are at rest: x and y uint8 (B, *patch_shape), z float32 (B, dim)."""
        index = self._checked_index(index)
        if self.pairs == "fixed":
            x, y, z = self._materialize()
            return x.index_select(0, index), y.index_select(0, index), z.index_select(0, index)
        if len(index) <= _CHUNK:
            return self._make(epoch, index)
        blocks = [self._make(epoch, index[part]) for part in _slices(len(index), _CHUNK)]
        x, y, z = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        return x, y, z

    @cached_property
    def fingerprint(self) -> str:
        """Which images the pairs are made of: `caunet.data.fingerprint` of their pixels."""
        return self.images.fingerprint if isinstance(self.images, ImageSet) else fingerprint(self._pixels)

    @property
    def size(self) -> tuple[int, ...]:
        """Height and width of the images; depth, height and width of volumes."""
        return tuple(self._pixels.shape[1:])

    @property
    def patch_shape(self) -> tuple[int, ...]:
        """(patch, patch), or (patch, patch, patch) of volumes."""
        return (self.patch,) * self.task.dimensions

    @property
    def names(self) -> tuple[str, ...]:
        """What the parameters are called, in the protocol's order of z."""
        return ("rows", "columns") if self.rows_first else self.task.names

    @property
    def rows_first(self) -> bool:
        """Whether z is (rows, columns), y before x: see `caunet.data.protocols.rows_first`."""
        return self.pair_protocol.rows_first

    def homography(self, z: Tensor) -> Tensor:
        """z (..., dim), in the protocol's order (release translation: rows first), to H (..., d+1, d+1)."""
        return self.pair_protocol.homography(z)

    def steps(self, batch: int) -> int:
        """How many whole batches an epoch has."""
        if not 1 <= batch <= len(self):
            raise ValueError(f"batch must be 1 to {len(self)} (the number of pairs), got {batch}")
        return len(self) // batch

    def schedule(self, step: int, batch: int, order: str = "shuffled") -> tuple[int, Tensor]:
        """Epoch and index (batch,) of global batch number ``step``: a pure function, so runs resume anywhere.

        ``shuffled``: every epoch in an order of its own; ``contiguous``: runs of the stored order, ten pairs
        per image in a row. What is left over at the end of an epoch is dropped.
        """
        if order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
        if step < 0:
            raise ValueError(f"step must be 0 or more, got {step}")
        epoch, place = divmod(step, self.steps(batch))
        if order == "contiguous":
            return epoch, torch.arange(place * batch, (place + 1) * batch, device=self.device)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._permutation(epoch)
        return epoch, self._order[1][place * batch : (place + 1) * batch]

    def stream(
        self, start: int, stop: int, batch: int, order: str = "shuffled", rank: int = 0, world: int = 1
    ) -> Iterator[Pairs]:
        """Batches number ``start`` to ``stop`` - 1 of the schedule; of each, the share of one ``rank``.

        Shares are consecutive parts of the batch whose sizes differ by at most one, the larger ones first.
        Same values as `batch` gives; fresh pairs are made many batches at a time, because that is faster.
        """
        if not 0 <= rank < world <= batch:
            raise ValueError(f"rank must satisfy 0 <= rank < world <= batch, got {rank}, {world}, {batch}")
        small, larger = divmod(batch, world)
        first = rank * small + min(rank, larger)
        count = small + (rank < larger)
        ahead = max(1, _CHUNK // count)
        epoch_steps = self.steps(batch)
        step = start
        while step < stop:
            # A chunk stays within one epoch: fresh pairs are made for one epoch at a time.
            last = min(stop, step + ahead, (step // epoch_steps + 1) * epoch_steps)
            planned = [self.schedule(i, batch, order) for i in range(step, last)]
            index = torch.cat([part[first : first + count] for _, part in planned])
            made = self._to_float(*self.bytes(planned[0][0], index))
            for part in _slices(len(index), count):
                yield Pairs(*(t[part] for t in made))
            step = last

    def _permutation(self, epoch: int) -> Tensor:
        return keys.permutation(self.seed, epoch, len(self), self.device, self._streams[Stream.SHUFFLE])

    def _to_float(self, x: Tensor, y: Tensor, z: Tensor) -> Pairs:
        x, y = (t.to(self.dtype).div_(255).sub_(0.5) for t in (x, y))
        return Pairs(x, y, z.to(self.dtype))

    def _materialize(self) -> tuple[Tensor, Tensor, Tensor]:
        if self._fixed is None:
            n = len(self)
            x = torch.empty(n, *self.patch_shape, dtype=torch.uint8, device=self.device)
            y, z = torch.empty_like(x), torch.empty(n, self.task.dim, device=self.device, dtype=torch.float32)
            with track(n, f"making {self.task.name} pairs", "pairs") as bar:
                for part in _slices(n, _CHUNK):
                    index = torch.arange(part.start, part.stop, device=self.device)
                    x[part], y[part], z[part] = self._make(0, index)
                    bar.advance(len(index))
            self._fixed, self._centers, self._padded = (x, y, z), None, None
        return self._fixed

    def _make(self, epoch: int, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # A chunk of pairs, from keys to bytes.
        z = self.pair_protocol.parameters(
            keys.uniform(self.seed, epoch, index, self.task.dim, self._streams[Stream.PARAMETERS])
        )
        plan: protocols.Crops | Tensor
        if self.pair_protocol.places:
            plan = self.pair_protocol.crops(
                z, keys.uniform(self.seed, epoch, index, 2, self._streams[Stream.PLACE])
            )
        else:
            plan = self.pair_protocol.pull(z)
        image = torch.div(index, self.per_image, rounding_mode="floor")
        x = torch.empty(len(index), *self.patch_shape, dtype=torch.uint8, device=self.device)
        y = torch.empty_like(x)
        for part in _slices(len(index), max(1, _BLOCK // math.prod(self.patch_shape))):
            first, second = self._read(image[part], plan, part)
            if self.photometric is not None:
                first, second = self.photometric.apply(
                    first, second, self.seed, epoch, index[part], self.split
                )
            x[part], y[part] = lookup.to_bytes(first), lookup.to_bytes(second)
        return x, y, z

    def _read(self, image: Tensor, plan: protocols.Crops | Tensor, part: slice) -> tuple[Tensor, Tensor]:
        if self._padded is None:
            self._padded = lookup.pad(self._pixels)
        canvas = lookup.Canvas(self._padded, image)
        if isinstance(plan, protocols.Crops):
            first, second = (lookup.crop(canvas, corner[part], self.patch) for corner in plan)
            return first, second
        if self._centers is None:  # the first patch is the same in all pairs of an image
            centers = self._pixels
            for axis, begin in enumerate(self.pair_protocol.corner, start=1):
                centers = centers.narrow(axis, begin, self.patch)
            self._centers = centers.contiguous()
        read = lookup.bicubic if self.pair_protocol.interpolation == "bicubic" else lookup.linear
        return self._centers.index_select(0, image), read(canvas, plan[part], self.patch)

    def _checked_index(self, index: Tensor) -> Tensor:
        if index.dtype != torch.int64 or index.ndim != 1:
            raise TypeError(f"index must be an int64 tensor (B,), got {index.dtype} {tuple(index.shape)}")
        if index.device.type == "cpu" and index.numel():  # on a GPU this would wait for it
            low, high = int(index.min()), int(index.max())
            if low < 0 or high >= len(self):
                raise ValueError(f"index must be 0 to {len(self) - 1}, got {low} to {high}")
        return index.to(self.device)


def _checked(pixels: Tensor) -> Tensor:
    if pixels.dtype != torch.uint8 or pixels.ndim not in (3, 4) or len(pixels) == 0:
        raise TypeError(
            "images must be bytes (N, height, width) or (N, depth, height, width), "
            f"got {pixels.dtype} {tuple(pixels.shape)}"
        )
    return pixels


def _slices(n: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))
