"""The learning rules in plain NumPy and float64, as they are printed, with none of the package's shortcuts."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def multiplicative(weight: Array, grad: Array, lr: float, eps: float) -> Array:
    """The paper's (mul_update): W ∘ (∇-/∇+)^η with ∇± = (|g| ± g)/2 + ε."""
    plus = 0.5 * (np.abs(grad) + grad) + eps
    minus = 0.5 * (np.abs(grad) - grad) + eps
    return weight * (minus / plus) ** lr


class Adam:
    """Adam of Kingma and Ba, Algorithm 1: the direction m̂ / (√v̂ + eps) for a stream of gradients."""

    def __init__(self, betas: tuple[float, float], eps: float) -> None:
        self.betas, self.eps = betas, eps
        self.m: Array | float = 0.0
        self.v: Array | float = 0.0
        self.t = 0

    def direction(self, grad: Array) -> Array:
        b1, b2 = self.betas
        self.t += 1
        self.m = b1 * self.m + (1 - b1) * grad
        self.v = b2 * self.v + (1 - b2) * grad**2
        mean, square = self.m / (1 - b1**self.t), self.v / (1 - b2**self.t)
        return mean / (np.sqrt(square) + self.eps)


def multiplicative_adam(
    weight: Array, grads: list[Array], lr: float, betas: tuple[float, float], eps: float, mix: float = 0.0
) -> Array:
    """Adam on θ = log W step by step, and the paper's update of rate lr * mix after each of its steps."""
    adam = Adam(betas, eps)
    for grad in grads:
        theta = np.log(weight) - lr * adam.direction(weight * grad)
        weight = multiplicative(np.exp(theta), grad, lr * mix, 1e-20)
    return weight
