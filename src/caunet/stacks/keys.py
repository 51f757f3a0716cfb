"""Key frames, kept in a file of their own: memory does not grow with their number."""

import tempfile
from collections import OrderedDict

import numpy as np
import torch
from torch import Tensor

__all__ = ["KeyFrames"]

_READY = 4  # frames kept in memory


class KeyFrames:
    """Gray frames (H, W) by number, the last few used in memory, all of them in a temporary file."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size
        self.numbers: list[int] = []
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed by close(), and by the system at the end
        self._ready: OrderedDict[int, Tensor] = OrderedDict()

    def add(self, number: int, frame: Tensor) -> None:
        """Keep ``frame`` as number ``number``."""
        self._file.seek(len(self.numbers) * self._bytes)
        self._file.write(frame.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
        self.numbers.append(number)
        self._remember(number, frame)

    def __getitem__(self, number: int) -> Tensor:
        if number in self._ready:
            self._ready.move_to_end(number)
            return self._ready[number]
        self._file.seek(self.numbers.index(number) * self._bytes)
        content = np.frombuffer(self._file.read(self._bytes), np.float32).copy()
        frame = torch.from_numpy(content).view(self.size)
        self._remember(number, frame)
        return frame

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    @property
    def _bytes(self) -> int:
        return 4 * self.size[0] * self.size[1]

    def _remember(self, number: int, frame: Tensor) -> None:
        self._ready[number] = frame
        while len(self._ready) > _READY:
            self._ready.popitem(last=False)
