"""Volumes: how two of them are related, in voxels and in millimeters.

Where things are
    volume.py, read.py, write.py    what a volume is, files
    prepare.py, pyramid.py          float32 of a size that fits, at several resolutions
    points.py, light.py             what is compared, and how values of both are related
    alignment.py, search.py         Gauss-Newton steps in both directions; first guesses
    register.py, estimate.py        the whole way, from two volumes to a `VolumeEstimate`
    result.py, transforms.py, ...   the result, other programs' terms, resampling, uncertainty
"""

from caunet.volumes.estimate import estimate_volume
from caunet.volumes.read import is_volume_path, read_volume
from caunet.volumes.result import VolumeEstimate
from caunet.volumes.volume import Volume
from caunet.volumes.write import save_volume

__all__ = ["Volume", "VolumeEstimate", "estimate_volume", "is_volume_path", "read_volume", "save_volume"]
