"""Tasks: the parameters z of a family of transformations, their ranges, and z -> H.

`plane.py` has the paper's five and `motion`, with which whole images are aligned; `space.py` the same families one
dimension up, for volumes; `register` adds more (docs/tasks.md shows two). A task's H has its origin at the center of
the patch, in pixels, with the convention of `caunet.geometry`: (..., 3, 3) in the plane, (..., 4, 4) in space.
"""

from caunet.tasks.plane import PLANE
from caunet.tasks.space import SPACE
from caunet.tasks.task import Task, get, names, register

__all__ = ["PLANE", "SPACE", "Task", "get", "names", "register"]
