"""Reconcile many relations between frames: a pose graph on the group of a motion model.

Each frame i has a pose X_i, which maps its points into one common frame. A relation (i, j, M) says that M maps points
of i to points of j, so that X_i should be X_j M. What is minimized over all poses is

    sum over relations of rho( xi' L xi ),    M^-1 X_j^-1 X_i = exp(sum of xi_g G_g),

with the generators G_g of the motion model, the information L of each relation (the inverse of its covariance) and
Geman and McClure's rho, so that a wrong relation loses its influence instead of bending the others. Steps are those
of Gauss and Newton; their normal equations are solved by conjugate gradients, so that ten thousand frames need no
matrix of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from caunet import geometry

__all__ = ["Relation", "reconcile"]

Matrix = npt.NDArray[np.float64]

_SCALE = (
    9.0  # squared normalized residual per degree of freedom at which a relation has a quarter of its weight
)
_STEPS = 20
_SMALL = 1e-9  # a step that moves corners by less than this part of a pixel is the last


@dataclass(frozen=True, eq=False)
class Relation:
    """``matrix`` (3, 3) maps points of frame ``source`` to frame ``target``; ``information`` (k, k) is its weight.

    The information is that of a small change of the matrix, M (I + sum of d_g G_g), as in ``reconcile``.
    """

    source: int
    target: int
    matrix: Matrix
    information: Matrix


def reconcile(
    count: int,
    relations: Sequence[Relation],
    generators: Matrix,
    points: Matrix,
    initial: Matrix | None = None,
    fixed: int = 0,
) -> tuple[Matrix, Matrix]:
    """Poses (count, 3, 3) that agree best with all ``relations``, and how far each relation was trusted (E,).

    Args:
        count: how many frames.
        relations: between frames 0 to count - 1; frames that none of them ties to ``fixed`` keep their pose.
        generators: (k, 3, 3), of the motion model's group.
        points: (P, 2), where a pose is compared: the corners of a frame.
        initial: (count, 3, 3) to begin at; by default relations are followed from ``fixed``, the surest first.
        fixed: the frame whose pose is the identity.

    >>> shift = lambda x: np.array([[1.0, 0, x], [0, 1, 0], [0, 0, 1]])
    >>> G = np.zeros((2, 3, 3)); G[0, 0, 2] = G[1, 1, 2] = 1
    >>> pairs = [Relation(1, 0, shift(1.0), np.eye(2)), Relation(2, 1, shift(1.0), np.eye(2)),
    ...          Relation(2, 0, shift(2.3), np.eye(2))]
    >>> poses, trust = reconcile(3, pairs, G, np.array([[0.0, 0], [9, 0], [9, 9], [0, 9]]))
    >>> poses[:, 0, 2].round(3)
    array([0. , 1.1, 2.2])
    """
    poses = chain(count, relations, fixed) if initial is None else np.array(initial, dtype=np.float64)
    if not relations:
        return poses, np.zeros(0)
    system = _System(count, relations, generators, points, fixed)
    for _ in range(_STEPS):
        step = system.step(poses)
        poses = geometry.normalize(poses @ (np.eye(3) + np.einsum("nk,kij->nij", step, generators)))
        if np.abs(np.einsum("pk,nk->np", system.jacobian, step)).max() < _SMALL:
            break
    poses = geometry.normalize(np.linalg.inv(poses[fixed]) @ poses)
    return poses, system.trust


def chain(count: int, relations: Sequence[Relation], fixed: int = 0) -> Matrix:
    """Poses by following relations from ``fixed`` outward, those of the largest information first (Prim's tree)."""
    import heapq

    sizes = [
        float(np.linalg.slogdet(r.information + 1e-12 * np.eye(len(r.information)))[1]) for r in relations
    ]
    beside: list[list[tuple[float, int, int]]] = [[] for _ in range(count)]
    for number, relation in enumerate(relations):
        beside[relation.source].append((-sizes[number], relation.target, number))
        beside[relation.target].append((-sizes[number], relation.source, number))
    poses = np.tile(np.eye(3), (count, 1, 1))
    reached, queue = {fixed}, list(beside[fixed])
    heapq.heapify(queue)
    while queue:
        _, frame, number = heapq.heappop(queue)
        if frame in reached:
            continue
        relation = relations[number]
        if frame == relation.source:
            poses[frame] = poses[relation.target] @ relation.matrix
        else:
            poses[frame] = poses[relation.source] @ np.linalg.inv(relation.matrix)
        reached.add(frame)
        for entry in beside[frame]:
            if entry[1] not in reached:
                heapq.heappush(queue, entry)
    return geometry.normalize(poses)


class _System:
    """The normal equations of one Gauss-Newton step."""

    def __init__(
        self, count: int, relations: Sequence[Relation], generators: Matrix, points: Matrix, fixed: int
    ) -> None:
        self.count, self.fixed, self.points = count, fixed, points
        self.source = np.array([r.source for r in relations])
        self.target = np.array([r.target for r in relations])
        self.matrix = np.stack([r.matrix for r in relations])
        self.inverse = np.linalg.inv(self.matrix)
        self.information = np.stack([r.information for r in relations])
        # How points move with each generator: (2 P, k). Its pseudo-inverse turns displacements into coordinates.
        self.jacobian = self._displacements(np.eye(3) + 1e-6 * generators).T / 1e-6
        self.coordinates = np.linalg.pinv(self.jacobian)
        carried = self.inverse[:, None] @ generators @ self.matrix[:, None]  # M^-1 G M: (E, k, 3, 3)
        moved = self._displacements(np.eye(3) + 1e-6 * carried) / 1e-6  # (E, k, 2 P)
        self.adjoint = np.einsum("kp,egp->ekg", self.coordinates, moved)
        self.trust = np.ones(len(relations))
        self.free = np.ones(count)
        self.free[fixed] = 0.0

    def _displacements(self, matrices: Matrix) -> Matrix:
        """How far matrices (..., 3, 3) move the points: (..., 2 P)."""
        difference: Matrix = geometry.apply(matrices, self.points) - self.points
        return difference.reshape(*matrices.shape[:-2], -1)

    def step(self, poses: Matrix) -> Matrix:
        """Changes (count, k) of all poses."""
        between = np.linalg.inv(poses[self.target]) @ poses[self.source]
        residual = np.einsum("kp,ep->ek", self.coordinates, self._displacements(self.inverse @ between))
        size = np.einsum("ek,ekl,el->e", residual, self.information, residual) / residual.shape[1]
        self.trust = 1 / np.square(1 + size / _SCALE)
        weight = self.information * self.trust[:, None, None]
        right = -self._transposed(np.einsum("ekl,el->ek", weight, residual))
        return self._solve(weight, right)

    def _applied(self, step: Matrix) -> Matrix:
        """How residuals change with poses: xi + step_i - Ad step_j."""
        change: Matrix = step[self.source] - np.einsum("ekg,eg->ek", self.adjoint, step[self.target])
        return change

    def _transposed(self, values: Matrix) -> Matrix:
        out = np.zeros((self.count, values.shape[1]))
        np.add.at(out, self.source, values)
        np.add.at(out, self.target, -np.einsum("ekg,ek->eg", self.adjoint, values))
        return out * self.free[:, None]

    def _solve(self, weight: Matrix, right: Matrix) -> Matrix:
        """Conjugate gradients, preconditioned by each frame's own block."""
        block = np.zeros((self.count, *weight.shape[1:]))
        np.add.at(block, self.source, weight)
        np.add.at(block, self.target, np.swapaxes(self.adjoint, 1, 2) @ weight @ self.adjoint)
        mean = max(float(np.trace(block, axis1=1, axis2=2).mean()), 1e-300)
        precondition = np.linalg.inv(block + 1e-12 * mean * np.eye(block.shape[1]))
        solution, residual = np.zeros_like(right), right.copy()
        direction = prepared = np.einsum("nkl,nl->nk", precondition, residual) * self.free[:, None]
        product = float((residual * prepared).sum())
        limit = 1e-20 * product
        for _ in range(20 * self.count + 100):
            if not product > limit:
                break
            changed = self._transposed(np.einsum("ekl,el->ek", weight, self._applied(direction)))
            length = product / float((direction * changed).sum())
            solution += length * direction
            residual = residual - length * changed
            prepared = np.einsum("nkl,nl->nk", precondition, residual) * self.free[:, None]
            previous, product = product, float((residual * prepared).sum())
            direction = prepared + (product / previous) * direction
        return solution
