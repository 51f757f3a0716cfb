"""Many images of one scene: stacks and videos brought into one common frame."""

from caunet.stacks.align import align
from caunet.stacks.alignment import Alignment

__all__ = ["Alignment", "align"]
