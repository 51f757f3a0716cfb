"""Images, and pairs of patches made from them."""

from caunet.data.images import ImageSet, fingerprint, load_images
from caunet.data.pairs import Pairs, PairSource
from caunet.data.photometric import Photometric

__all__ = ["ImageSet", "PairSource", "Pairs", "Photometric", "fingerprint", "load_images"]
