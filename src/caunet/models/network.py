"""The network itself: features, relation units, competition, decoder."""

from typing import Any

import torch
from torch import Tensor, nn

from caunet.models.relations import build_competition, build_decoder, build_relation
from caunet.models.spec import ModelSpec
from caunet.nn import RelativeContrast

__all__ = ["CONTRAST_FLOOR", "RelationNetwork", "equal_contrast"]

# A quarter of a grey level (1/255): what is flatter than that is noise, and stays small.
CONTRAST_FLOOR = 0.001


class RelationNetwork(nn.Module):
    """z = g(competition(R(f(x), f(y)))), equations (1) and (2) of the paper.

    Make one with :func:`caunet.models.create_model`. Its four parts are ``features``, ``relation``,
    ``competition`` and ``decoder``. A custom f takes (B, 1, patch, patch); what it gives is flattened.

    Args:
        spec: what to build.
        features: f; ``None`` is the identity.
        generator: where the first weights come from; ``None`` is PyTorch's global generator.
    """

    output_center: Tensor | None
    output_scale: Tensor | None

    def __init__(
        self, spec: ModelSpec, features: nn.Module | None = None, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.model_spec = spec
        self.features = nn.Identity() if features is None else features
        self.relation = build_relation(spec, generator)
        self.competition = build_competition(spec)
        self.decoder = build_decoder(spec, generator)
        for name in ("output_center", "output_scale"):
            value = getattr(spec, name)
            # Not in the state: the spec holds them.
            self.register_buffer(name, None if value is None else torch.tensor(value), persistent=False)

    @property
    def spec(self) -> dict[str, Any]:
        """What rebuilds this network, as JSON-able data (a custom f has to be handed over again)."""
        return self.model_spec.to_json()

    @property
    def learning_rule(self) -> str:
        """What its non-negative weights want: ``multiplicative``, ``projection``; ``adam`` if it has none."""
        return self.model_spec.learning_rule

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Infer z (B, dim) from patches x and y, each (B, patch, patch) or (B, patch * patch)."""
        responses = self.units(x, y)
        if self.model_spec.response_center:
            responses = responses - 1 / self.model_spec.units  # they sum to 1
        if self.model_spec.response_scale != 1:
            responses = responses * self.model_spec.response_scale
        z: Tensor = self.decoder(responses)
        if self.output_scale is not None and self.output_center is not None:
            return torch.addcmul(self.output_center, z, self.output_scale)
        return z

    def units(self, x: Tensor, y: Tensor) -> Tensor:
        """Responses (B, units) after the competition."""
        responses: Tensor = self.competition(self.relate(x, y))
        return responses

    def relate(self, x: Tensor, y: Tensor) -> Tensor:
        """Relation units h (B, units) before the competition."""
        a, b = self._extract("x", x), self._extract("y", y)
        if self.model_spec.contrast is not None:
            a, b = equal_contrast(a, b, self.model_spec.contrast)
        h: Tensor = self.relation(a, b)
        return h

    def _extract(self, name: str, image: Tensor) -> Tensor:
        side = self.model_spec.patch
        if tuple(image.shape[1:]) not in {(side, side), (side * side,)}:
            takes = f"(B, {side}, {side}) or (B, {side * side})"
            raise ValueError(f"{name} takes shape {takes}, got {tuple(image.shape)}")
        if isinstance(self.features, nn.Identity):
            return image.flatten(1)
        extracted: Tensor = self.features(image.reshape(-1, 1, side, side))
        return extracted.flatten(1)

    def rescale_(self) -> None:
        """Take out of the relation's weights the size that means nothing, if they have one; no answer changes."""
        if isinstance(self.relation, RelativeContrast):
            self.relation.rescale_()

    def parameter_count(self) -> int:
        """Number of learnable numbers.

        >>> from caunet.models import create_model
        >>> create_model("ctn", "rotation").parameter_count()
        692205
        """
        return sum(p.numel() for p in self.parameters())

    def multiply_adds(self) -> int:
        """Multiply-adds to infer one z, in all linear maps and products of factors.

        CAUs are counted by the grouped algebra that computes them: K (I + J) for the factors, K products,
        and one vector per unit and image for the squares. Vectors that depend on weights alone, squares of
        pixels, PReLU, exponentials and normalisations are not counted.
        """
        spec = self.model_spec
        decoder = _linear_multiply_adds(self.decoder)
        features = 0 if spec.features is None else 2 * self._features_multiply_adds()
        return features + _relation_multiply_adds(spec) + decoder

    def _features_multiply_adds(self) -> int:
        """Of one run of a custom f: linear and convolution layers, by watching them work."""
        total = 0

        def watch(module: nn.Module, _: Any, output: Tensor) -> None:
            nonlocal total
            weight = module.weight
            assert isinstance(weight, Tensor)
            total += output.numel() * weight[0].numel()

        watched = [m for m in self.features.modules() if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d)]
        handles = [m.register_forward_hook(watch) for m in watched]
        try:
            dry_run(self.features, self.model_spec.patch)
        finally:
            for handle in handles:
                handle.remove()
        return total


def equal_contrast(a: Tensor, b: Tensor, contrast: float) -> tuple[Tensor, Tensor]:
    """a (B, I) and b (B, J) less their common mean, times the factor that makes their joint deviation ``contrast``.

    What relates the two stays: a pair under one gain and one offset becomes the same pair. (Standardising each
    patch by itself would change what moved across its border into a change of all its pixels.)

    >>> a, b = torch.tensor([[0.0, 2.0]]), torch.tensor([[4.0, 2.0]])
    >>> equal_contrast(a, b, 1.0)
    (tensor([[-1.4142,  0.0000]]), tensor([[1.4142, 0.0000]]))
    """
    mean = 0.5 * (a.mean(1, keepdim=True) + b.mean(1, keepdim=True))
    a, b = a - mean, b - mean
    variance = 0.5 * (a.square().mean(1, keepdim=True) + b.square().mean(1, keepdim=True))
    factor = contrast * torch.rsqrt(variance + CONTRAST_FLOOR**2)
    return a * factor, b * factor


def _linear_multiply_adds(module: nn.Module) -> int:
    return sum(m.in_features * m.out_features for m in module.modules() if isinstance(m, nn.Linear))


def _relation_multiply_adds(spec: ModelSpec) -> int:
    i = j = spec.inputs
    if spec.relation == "concatenation":
        return 0
    if spec.rank is None:
        # The outer product (or the squared differences), then one product with all the weights.
        return i * j + spec.units * i * j
    terms = spec.units * spec.rank
    squares = spec.units * (i + j) if spec.relation == "contrast-association" else 0
    return terms * (i + j) + terms + squares


def dry_run(features: nn.Module, patch: int) -> int:
    """How many numbers ``features`` makes of a patch, seen by giving it zeros."""
    like = next(features.parameters(), torch.empty(0))
    was_training = features.training
    features.eval()  # batch norm: statistics must not see the zeros
    try:
        with torch.no_grad():
            made: Tensor = features(torch.zeros(1, 1, patch, patch, device=like.device, dtype=like.dtype))
    finally:
        features.train(was_training)
    return made.flatten(1).shape[1]
