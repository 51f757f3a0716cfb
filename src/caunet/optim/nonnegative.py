"""Optimizers for non-negative weights: the paper's multiplicative update, and two to hold against it."""

from torch.optim.optimizer import ParamsT

from caunet.optim.base import RuleOptimizer

__all__ = ["MultiplicativeAdam", "MultiplicativeUpdate", "ProjectedAdam"]


class MultiplicativeUpdate(RuleOptimizer):
    r"""The paper's multiplicative update, W <- W ∘ (∇-/∇+)^η, for weights that must stay non-negative.

    ∇± = (\|g\| ± g)/2 + ε for the gradient g = dE/dW. Every weight is multiplied by about (ε/\|g\|)^(±η):
    the size of the gradient enters through its logarithm only. Weights stay positive and finite whatever
    the gradients are (they are kept in [tiny, max] of their type); a weight that is exactly 0 stays 0 and
    never learns.

    Args:
        params: parameters, or ``(name, parameter)`` pairs (messages then use the names), or group dicts.
        lr: η.
        eps: ε.
        foreach: update lists of tensors at once; by default only on CUDA. The results are the same.
        maximize: climb instead of descending.
        differentiable: must be False, for weights are changed in place.

    Under ``torch.amp.GradScaler`` a step whose gradients overflowed is skipped, as with torch's own optimizers.

    >>> import torch
    >>> w = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
    >>> optimizer = MultiplicativeUpdate([w], lr=0.05)
    >>> target = torch.tensor([0.25, 3.0])
    >>> for _ in range(400):
    ...     optimizer.param_groups[0]["lr"] *= 0.97
    ...     optimizer.zero_grad()
    ...     ((w - target) ** 2).sum().backward()
    ...     optimizer.step()
    >>> [round(value, 2) for value in w.tolist()]
    [0.25, 3.0]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.005,
        eps: float = 1e-20,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, "multiplicative", {"lr": lr, "eps": eps}, foreach, maximize, differentiable)


class MultiplicativeAdam(RuleOptimizer):
    r"""Adam on the logarithm of the weights, W <- W ∘ exp(-α m / (√v + eps)), and the paper's rule if wanted.

    m and v are Adam's bias-corrected moments of W ∘ g. With ``mix`` > 0 the paper's term joins the exponent,

        W <- W ∘ exp(-α [ m / (√v + eps) + mix · sign(g) · log1p(\|g\| / mix_eps) ]),

    so η = α · mix and a scheduler lowers both. Adam alone is fast where gradients are dense and stalls
    where units rarely win; the paper's rule keeps those learning. ``lr=0.05, mix=0.04`` (η = 0.002) is a
    good start. Positivity, finiteness, zeros, ``maximize`` and ``differentiable``: as in :class:`MultiplicativeUpdate`.

    >>> import torch
    >>> w = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = MultiplicativeAdam([w], lr=0.1)
    >>> (5 * w).sum().backward()
    >>> optimizer.step()
    >>> w.item()  # exp(-0.1)
    0.9048...
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.05,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-12,
        *,
        mix: float = 0.0,
        mix_eps: float = 1e-20,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": tuple(betas), "eps": eps, "mix": mix, "mix_eps": mix_eps}
        super().__init__(params, "multiplicative-adam", options, foreach, maximize, differentiable)


class ProjectedAdam(RuleOptimizer):
    """Adam, then every negative weight is set to 0: the projection that the paper argues against.

    >>> import torch
    >>> w = torch.nn.Parameter(torch.tensor([0.05, 1.0]))
    >>> optimizer = ProjectedAdam([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.0000, 0.9000])
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.005,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, "projection", {"lr": lr, "betas": tuple(betas), "eps": eps})
