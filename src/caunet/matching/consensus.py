"""Transformations that many matches agree on, found from single matches.

A match carries place, scale and orientation in both images, so that each alone proposes a similarity. All proposals
are tested against all matches at once; the best grow by weighted fits whose tolerance narrows, all of them in one
batch (local optimization, without sampling); and those that end at different transformations are returned. Nothing is
drawn at random: equal matches give equal answers.

Coordinates: points are (x, y) in pixels, and H maps those of a to those of b.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from caunet.geometry import apply

__all__ = ["Hypothesis", "Matches", "consensus"]

_FREEDOM = {"translation": 2, "euclidean": 3, "similarity": 4, "affine": 6, "projective": 8}
_SEEDS = 48  # proposals that are grown
_ROUNDS = 8  # of growing
_WIDE = 6.0  # tolerance of the first round, in units of that of the last
_LOOSE = 0.25  # how far a neighbor may be off, as a share of its distance, under one match's similarity
_SCALE = 0.6  # how far (logarithm) a neighbor's scale may be off
_TURN = 0.7  # how far (radians) a neighbor's angle may be off
_HOLD = 1e-4  # strength with which a fit is held to the one before, where matches leave it open
_PLACED = 0.5  # standard deviation of a blob's place, in units of its size
_NEAR = 0.05  # third coordinate (1 in the middle of the matches) below which a point is behind the viewer


class Matches(NamedTuple):
    """M pairs of places that look alike."""

    a: Tensor
    """(M, 2): places in a."""
    b: Tensor
    """(M, 2): places in b."""
    scale: Tensor
    """(M,): logarithm of the size in b over the size in a."""
    turn: Tensor
    """(M,): angle in b less angle in a, in radians."""
    sigma: Tensor
    """(M,): size in b, which bounds how well it is placed."""
    weight: Tensor
    """(M,): how sure the match is, from 0 to 1."""


class Hypothesis(NamedTuple):
    """A transformation and the matches that agree with it."""

    H: Tensor
    """(3, 3) float64, from a to b."""
    inliers: Tensor
    """(M,) bool: those nearer than is tolerated."""
    score: float
    """Sum of the weights of the inliers, each reduced by its squared distance in units of what is tolerated."""


def consensus(
    matches: Matches, model: str = "projective", *, tolerance: float, count: int = 5
) -> list[Hypothesis]:
    """At most ``count`` different transformations of a motion model, the one with the highest score first.

    Args:
        matches: all of them, right and wrong.
        model: translation, euclidean, similarity, affine or projective.
        tolerance: distance in b, in pixels, beyond which a match of a small blob disagrees.
        count: of hypotheses, whose corners differ by more than twice the tolerance.

    >>> a = torch.tensor([[0.0, 0.0], [9.0, 1.0], [2.0, 8.0], [5.0, 5.0]])
    >>> b = 2 * a + torch.tensor([[1.0, 3.0], [1.0, 3.0], [1.0, 3.0], [40.0, 1.0]])  # the last one is wrong
    >>> found = consensus(
    ...     Matches(a, b, torch.full((4,), math.log(2)), torch.zeros(4), torch.ones(4), torch.ones(4)),
    ...     "similarity", tolerance=0.5,
    ... )  # fmt: skip
    >>> (found[0].H.round() + 0.0).tolist(), found[0].inliers.tolist()
    ([[2.0, 0.0, 1.0], [0.0, 2.0, 3.0], [0.0, 0.0, 1.0]], [True, True, True, False])
    """
    if model not in _FREEDOM:
        raise ValueError(f"model must be one of {', '.join(_FREEDOM)}, got {model!r}")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, got {tolerance}")
    need = math.ceil(_FREEDOM[model] / 2)
    if len(matches.a) < need:
        return []
    problem = _Problem(matches, tolerance, model)
    H = problem.grow()
    score, inside = problem.score(H), problem.residual(H) < 1
    ends = apply(H, problem.frame(), far=1e6)
    found: list[int] = []
    for k in score.argsort(descending=True, stable=True).tolist():
        enough = float(score[k]) > 0 and int(inside[k].sum()) >= need
        apart = (ends[k] - ends[found]).norm(dim=2).mean(1)
        if enough and bool((apart > problem.same).all()):
            found.append(k)
        if len(found) == count:
            break
    return [Hypothesis(problem.in_pixels(H[k]), inside[k], float(score[k])) for k in found]


class _Problem:
    """Matches in coordinates of the order of 1, in float64."""

    def __init__(self, matches: Matches, tolerance: float, model: str) -> None:
        self.model = model
        self.into_a, self.a = _normalized(matches.a.double())
        self.into_b, self.b = _normalized(matches.b.double())
        unit = float(self.into_b[0, 0])
        self.ratio = unit / float(self.into_a[0, 0])  # what a scale of 1 between pixels becomes
        self.tolerance = unit * (tolerance**2 + (_PLACED * matches.sigma.double()).square()).sqrt()
        self.same = 2 * tolerance * unit
        self.scale, self.turn = matches.scale.double() + math.log(self.ratio), matches.turn.double()
        self.weight = matches.weight.double()
        # A place counts by how well it is known; the factor keeps the sums of the order of 1.
        self.precision = (self.tolerance.median() / self.tolerance).square()
        self.outer, self.right = _equations(self.a, self.b)

    def in_pixels(self, H: Tensor) -> Tensor:
        H = torch.linalg.inv(self.into_b) @ H @ self.into_a
        return H / H[2, 2]

    def frame(self) -> Tensor:
        """(4, 2): the corners of the box that holds the matches' places in a."""
        (left, top), (right, bottom) = self.a.amin(0), self.a.amax(0)
        return torch.stack([left, top, right, top, right, bottom, left, bottom]).view(4, 2)

    def residual(self, H: Tensor) -> Tensor:
        """(K, M): distances in b in units of what is tolerated; behind the viewer they are large."""
        moved = self.a @ H[:, :, :2].mT + H[:, None, :, 2]
        third = moved[..., 2:]
        error = (moved[..., :2] / third.clamp_min(_NEAR) - self.b).norm(dim=2) / self.tolerance
        return torch.where(third[..., 0] > _NEAR, error, 1e3)

    def score(self, H: Tensor) -> Tensor:
        """(K,): see `Hypothesis.score`; -1 for what is mirrored, collapsed or not finite."""
        finite = H.isfinite().flatten(1).all(1)
        H = torch.where(finite[:, None, None], H, 0.0)
        kept = (1 - self.residual(H).square()).clamp_min(0) @ self.weight
        return torch.where(torch.linalg.det(H) > 1e-4, kept, -1.0)

    def grow(self) -> Tensor:
        """(K, 3, 3): the best single matches' similarities, refined with ever more matches."""
        H, weight = self._seeds()
        order = [m for m in ("similarity", "affine") if _FREEDOM[m] < _FREEDOM[self.model]]
        simpler = [order[min(k // 2, len(order) - 1)] for k in range(2 * len(order))]
        for k in range(_ROUNDS):
            H = self._fit(simpler[k] if k < len(simpler) else self.model, H, weight)
            wide = _WIDE ** (1 - k / (_ROUNDS - 1))
            weight = self.weight / (1 + (self.residual(H) / wide).square()).square()  # Geman and McClure
        return self._fit(self.model, H, weight)

    def _seeds(self) -> tuple[Tensor, Tensor]:
        """Similarities (K, 3, 3) of the matches that most others support, and that support (K, M)."""
        cos, sin = self.scale.exp() * self.turn.cos(), self.scale.exp() * self.turn.sin()
        linear = torch.stack([cos, -sin, sin, cos], 1).view(-1, 2, 2)
        H = _matrices(linear, self.b - (linear @ self.a[..., None])[..., 0])
        moved = self.a @ linear.mT + H[:, None, :2, 2]  # (M, M, 2)
        reach = _LOOSE * (moved - self.b[:, None]).norm(dim=2) + 2 * self.tolerance
        apart = (self.turn - self.turn[:, None] + math.pi) % (2 * math.pi) - math.pi
        support = (1 - ((moved - self.b).norm(dim=2) / reach).square()).clamp_min(0)
        support *= (1 - ((self.scale - self.scale[:, None]) / _SCALE).square()).clamp_min(0)
        support *= (1 - (apart / _TURN).square()).clamp_min(0) * self.weight
        best = (support.sum(1) * self.weight.sqrt()).argsort(descending=True, stable=True)[:_SEEDS]
        return H[best], support[best]

    def _fit(self, model: str, H: Tensor, weight: Tensor) -> Tensor:
        """(K, 3, 3): weighted least squares for each row of ``weight`` (K, M)."""
        weight = weight * self.precision
        if model not in ("affine", "projective"):
            return self._fit_similarity(model, weight)
        free = _FREEDOM[model]
        system = (weight @ self.outer.flatten(1)).view(-1, 8, 8)[:, :free, :free]
        hold = _HOLD * weight.sum(1, keepdim=True) + 1e-9
        right = (weight @ self.right)[:, :free] + hold * H.flatten(1)[:, :free]
        solved, failed = torch.linalg.solve_ex(system + torch.diag_embed(hold.expand(-1, free)), right)
        made = torch.zeros_like(H).flatten(1)
        made[:, :free], made[:, 8] = solved, 1
        return torch.where((failed == 0)[:, None, None], made.view(-1, 3, 3), H)

    def _fit_similarity(self, model: str, weight: Tensor) -> Tensor:
        """Closed form: shift of the weighted means, angle and scale from one complex number."""
        total = weight.sum(1, keepdim=True).clamp_min(1e-12)
        mean_a, mean_b = weight @ self.a / total, weight @ self.b / total  # (K, 2)
        p, q = self.a - mean_a[:, None], self.b - mean_b[:, None]  # (K, M, 2)
        cos = (weight * (p * q).sum(2)).sum(1)
        sin = (weight * (p[..., 0] * q[..., 1] - p[..., 1] * q[..., 0])).sum(1)
        if model == "translation":
            cos, sin = torch.full_like(cos, self.ratio), torch.zeros_like(sin)
        else:
            length = torch.hypot(cos, sin) / self.ratio
            if model == "similarity":
                length = (weight * p.square().sum(2)).sum(1)
            cos, sin = cos / length.clamp_min(1e-12), sin / length.clamp_min(1e-12)
        linear = torch.stack([cos, -sin, sin, cos], 1).view(-1, 2, 2)
        return _matrices(linear, mean_b - (linear @ mean_a[..., None])[..., 0])


def _equations(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Normal equations (M, 8, 8) and right sides (M, 8) of b x H a = 0 for each match, the last entry of H being 1."""
    rows = a.new_zeros(len(a), 2, 8)
    rows[:, 0, :2], rows[:, 0, 2], rows[:, 1, 3:5], rows[:, 1, 5] = a, 1, a, 1
    rows[:, :, 6:] = -b[:, :, None] * a[:, None, :]
    return rows.mT @ rows, (rows * b[..., None]).sum(1)


def _matrices(linear: Tensor, shift: Tensor) -> Tensor:
    H = linear.new_zeros(len(linear), 3, 3)
    H[:, :2, :2], H[:, :2, 2], H[:, 2, 2] = linear, shift, 1
    return H


def _normalized(points: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix (3, 3) that brings points (M, 2) about 0 and to a size of 1, and those points."""
    middle = points.mean(0)
    size = 1 / (points - middle).abs().max().clamp_min(1e-6)
    into = torch.eye(3, dtype=points.dtype, device=points.device)
    into[0, 0] = into[1, 1] = size
    into[:2, 2] = -size * middle
    return into, (points - middle) * size
