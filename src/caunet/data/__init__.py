"""Images, and pairs of patches made from them."""

from caunet.data.images import ImageSet, load_images

__all__ = ["ImageSet", "load_images"]
