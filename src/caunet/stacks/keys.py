"""Key frames, kept in a file of their own: memory does not grow with their number."""

import contextlib
import tempfile
from collections import OrderedDict

import numpy as np
import torch

from caunet.errors import DataError
from caunet.stacks.views import View

__all__ = ["KeyFrames"]

_READY = 4  # frames kept in memory


class KeyFrames:
    """Views of frames of one size by number, the last few used in memory, all of them in a temporary file."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size
        self.numbers: list[int] = []
        self._place: dict[int, int] = {}
        self._masked: set[int] = set()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed by close(), and by the system at the end
        self._ready: OrderedDict[int, View] = OrderedDict()

    def add(self, number: int, view: View) -> None:
        """Keep ``view`` as number ``number``."""
        content = view.gray.detach().to("cpu", torch.float32).contiguous().numpy().tobytes()
        if view.mask is not None:
            content += view.mask.cpu().contiguous().numpy().tobytes()
            self._masked.add(number)
        self._place[number] = len(self.numbers)
        try:
            self._file.seek(self._place[number] * self._bytes)
            self._file.write(content)
            self._file.flush()
        except OSError as error:
            where = tempfile.gettempdir()
            raise DataError(
                f"cannot keep key frames in {where}: {error.strerror or error}; "
                "set TMPDIR to a folder with more space"
            ) from error
        self.numbers.append(number)
        self._remember(number, view)

    def __getitem__(self, number: int) -> View:
        if number in self._ready:
            self._ready.move_to_end(number)
            return self._ready[number]
        self._file.seek(self._place[number] * self._bytes)
        pixels = self.size[0] * self.size[1]
        gray = np.frombuffer(self._file.read(4 * pixels), np.float32).copy()
        mask = None
        if number in self._masked:
            counts = np.frombuffer(self._file.read(pixels), np.bool_).copy()
            mask = torch.from_numpy(counts).view(self.size)
        view = View(torch.from_numpy(gray).view(self.size), mask)
        self._remember(number, view)
        return view

    def close(self) -> None:
        """Give the file back."""
        with contextlib.suppress(OSError):  # what could not be written before cannot be now
            self._file.close()

    @property
    def _bytes(self) -> int:
        return 5 * self.size[0] * self.size[1]  # four of gray, one of mask

    def _remember(self, number: int, view: View) -> None:
        self._ready[number] = view
        while len(self._ready) > _READY:
            self._ready.popitem(last=False)
