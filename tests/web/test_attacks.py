"""Files made to be decoded for ever, or into all the memory there is: refused, and the next request is answered."""

import asyncio
import io

import pytest
from PIL import Image

from caunet.web.decoding import read_upload
from caunet.web.jobs import Computations
from caunet.web.refusals import TooLongError
from tests.web.pictures import ASTRONAUT, many_comments, many_scans, png

SMALL = png(ASTRONAUT[:64, :64])


@pytest.mark.parametrize("made", [many_scans, many_comments], ids=lambda made: made.__name__)
def test_endless_decoding_is_stopped(made):
    file = made()
    assert len(file) < 5 * 2**20  # it passes the limit of the body
    places = Computations("tests.web.jobs:setup_decoder", workers=1, seconds=0.5)
    try:
        with pytest.raises(TooLongError, match=r"longer than 0\.5 s"):
            asyncio.run(places.run("decode", "", file))
        assert asyncio.run(places.run("decode", "", SMALL)) == (200, b"[64,64]")
    finally:
        places.close()


def test_large_transparent_images_become_what_small_ones_do():
    """Reduced as bytes, by opacity, then laid on white: the same as laid on white, then reduced."""
    pixels = ASTRONAUT[:240, :320]
    image = Image.fromarray(pixels)
    image.putalpha(Image.linear_gradient("L").resize((320, 240)))
    file = io.BytesIO()
    image.save(file, "PNG")
    whole, half = (read_upload({"a": file.getvalue()}, "a", factor) for factor in (1, 2))
    expected = whole.pixels.reshape(120, 2, 160, 2, 3).mean((1, 3))
    assert half.size == (240, 320)
    assert float((half.pixels - expected).abs().max()) < 3 / 255
