"""``caunet estimate`` for two volumes: what differs from images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caunet.cli.estimate import EstimateCommand
    from caunet.volumes import VolumeEstimate

__all__ = ["check_volumes", "estimate_volumes", "volume_model", "write_volumes"]

_IMAGES_ONLY = ("region", "region_b", "channel", "overlay", "server", "focal", "principal_point")
_MODELS = {"projective": "rigid", "euclidean": "rigid"}
"""What the default of images, and their word for it, mean for volumes."""


def volume_model(name: str) -> str:
    """The motion model of volumes that a name stands for: the default of images becomes rigid.

    >>> volume_model("projective"), volume_model("affine")
    ('rigid', 'affine')
    """
    return _MODELS.get(name, name)


def check_volumes(command: EstimateCommand) -> None:
    """Everything that can be wrong without reading a volume."""
    from caunet.estimation.motion_models import create_motion_model
    from caunet.volumes.read import is_volume_path
    from caunet.volumes.transforms import check_transform_path
    from caunet.volumes.write import check_volume_path

    given = [name for name in _IMAGES_ONLY if getattr(command, name) is not None]
    given += ["fixed"] if command.fixed else []
    given += ["field"] if command.field else []
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"{options} must be left out for volumes, got {command.a}")
    create_motion_model(volume_model(command.model), dimensions=3)
    command.check_limits()
    if not is_volume_path(command.a) or not is_volume_path(command.b):
        raise ValueError(f"a and b must both be volumes or both images, got {command.a} and {command.b}")
    for option, path in (("--out", command.out), ("--transform", command.transform)):
        if path is None:
            continue
        (check_volume_path if option == "--out" else check_transform_path)(path, option)
        if path.resolve() in (command.a.resolve(), command.b.resolve()):
            raise ValueError(f"{option} would overwrite {path}, which is one of the two volumes")


def estimate_volumes(command: EstimateCommand, initial: Any) -> VolumeEstimate:
    """The estimate that the command asks for."""
    from caunet.cli.estimate import existing_device
    from caunet.volumes import estimate_volume

    return estimate_volume(
        command.a,
        command.b,
        volume_model(command.model),
        mask_a=command.mask_a,
        mask_b=command.mask_b,
        initial=initial,
        bounds=command.bounds() or None,
        device=existing_device(command.device),
        threads=command.threads,
    )


def write_volumes(command: EstimateCommand, found: VolumeEstimate) -> dict[str, Path]:
    """Write the files that the command asks for."""
    from caunet.volumes import save_volume

    written: dict[str, Path] = {}
    if command.out is not None:
        save_volume(found.warp(command.b, mode=command.mode), command.out)
        written["aligned"] = command.out
    if command.transform is not None:
        found.save_transform(command.transform)
        written["transform"] = command.transform
    return written
