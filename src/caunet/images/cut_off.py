"""Is a file of many frames shorter than it says? Decoders end at the end of a file without a word.

What is looked at is the container alone: RIFF (AVI), ISO media (MP4, MOV) and Matroska (MKV, WebM) state their length.
"""

from pathlib import Path

__all__ = ["missing_bytes"]

_MATROSKA = b"\x1a\x45\xdf\xa3"
_SEGMENT = b"\x18\x53\x80\x67"


def missing_bytes(path: Path) -> int:
    """How many bytes a video file lacks of the length that it states; 0 if none, or if it states none."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(64)
        if start[:4] == b"RIFF" and len(start) >= 8:
            stated = 8 + int.from_bytes(start[4:8], "little")
        elif start[4:8] == b"ftyp":
            stated = 0
            while stated < size:  # boxes, one after the other
                file.seek(stated)
                head = file.read(16)
                length = int.from_bytes(head[:4], "big")
                if length == 1:
                    length = int.from_bytes(head[8:16], "big")
                if len(head) < 8 or length < 8:  # 0: up to the end of the file, however long
                    break
                stated += length
        elif start[:4] == _MATROSKA:
            stated = _matroska_end(start)
        else:
            return 0
    return max(stated - size, 0)


def _matroska_end(start: bytes) -> int:
    """Where the segment behind the header ends; 0 if that is not stated."""
    length, place = _number(start, 4)
    place += length or 0
    if length is None or start[place : place + 4] != _SEGMENT:
        return 0
    length, place = _number(start, place + 4)
    return 0 if length is None else place + length


def _number(content: bytes, place: int) -> tuple[int | None, int]:
    """Matroska's number of variable length at ``place``, and where it ends; None if it is open or not there."""
    if place >= len(content) or content[place] == 0:
        return None, place
    width = 9 - content[place].bit_length()
    value = int.from_bytes(content[place : place + width], "big") & ((1 << 7 * width) - 1)
    return (None if value == (1 << 7 * width) - 1 else value), place + width
