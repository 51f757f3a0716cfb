"""The network itself: features, relation units, competition, decoder."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from caunet.models.initialization import initialize_
from caunet.models.spec import ModelSpec
from caunet.nn import Competition, Relation, reparametrize

__all__ = ["CONTRAST_FLOOR", "RelationNetwork", "equal_contrast", "feature_count"]

# A quarter of a gray level (1/255): what is flatter than that is noise, and stays small.
CONTRAST_FLOOR = 0.001

# Units of a higher rank start with weights that give h the size it has at this rank, the paper's: softmin would
# otherwise saturate from the start, and rank 16 learn badly.
_REFERENCE_RANK = 4


class RelationNetwork(nn.Module):
    """z = g(competition(R(f(x), f(y)))), equations (1) and (2) of the paper.

    Make one with :func:`caunet.models.create_model`. Its four parts are ``features``, ``relation``,
    ``competition`` and ``decoder``. A custom f gets (B, 1, patch, patch); its output is flattened.

    Args:
        spec: what to build.
        features: f; ``None`` is the identity.
        generator: where the initial weights come from; ``None`` is PyTorch's global generator.
    """

    relation: Relation
    competition: Competition
    output_center: Tensor | None
    output_scale: Tensor | None

    def __init__(
        self, spec: ModelSpec, features: nn.Module | None = None, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.model_spec = spec
        self.features = nn.Identity() if features is None else features
        self.relation = _build_relation(spec, generator)
        self.competition = spec.competition_class.create(spec.temperature, spec.learn_temperature)
        self.decoder = _build_decoder(spec, self.relation.outputs, generator)
        for name in ("output_center", "output_scale"):
            value = getattr(spec, name)
            # Not in the state: the spec holds them.
            self.register_buffer(name, None if value is None else torch.tensor(value), persistent=False)

    @property
    def spec(self) -> dict[str, Any]:
        """What rebuilds this network, as JSON-able data (a custom f has to be passed again)."""
        return self.model_spec.to_json()

    @property
    def learning_rule(self) -> str:
        """How its non-negative weights are trained: ``multiplicative``, ``projection``; ``adam`` if it has none."""
        return self.model_spec.learning_rule

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Infer z (B, dim) from patches x and y, each (B, *patch_shape) or (B, pixels)."""
        return self.decode(self.units(x, y))

    def units(self, x: Tensor, y: Tensor) -> Tensor:
        """Responses (B, units) after the competition."""
        responses: Tensor = self.competition(self.relate(x, y))
        return responses

    def relate(self, x: Tensor, y: Tensor) -> Tensor:
        """Relation units h (B, units) before the competition."""
        h: Tensor = self.relation(*self.extract(x, y))
        return h

    def extract(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """What the relation units see of patches x and y: features a and b (B, inputs), at equal contrast if asked."""
        a, b = self._extract("x", x), self._extract("y", y)
        contrast = self.model_spec.contrast
        return (a, b) if contrast is None else equal_contrast(a, b, contrast)

    def decode(self, responses: Tensor, decoder: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """z (B, dim) from responses (B, units): centering, scaling, the decoder, scaling of its outputs.

        The one way from responses to z: patches, dense fields and exported files all take it. ``decoder`` computes the
        network's own decoder in another way.
        """
        if self.model_spec.response_center:
            responses = responses - 1 / self.relation.outputs  # they sum to 1
        if self.model_spec.response_scale != 1:
            responses = responses * self.model_spec.response_scale
        z: Tensor = (decoder or self.decoder)(responses)
        if self.output_scale is not None and self.output_center is not None:
            return torch.addcmul(self.output_center, z, self.output_scale)
        return z

    def _extract(self, name: str, image: Tensor) -> Tensor:
        shape = self.model_spec.patch_shape
        # torch.jit.trace records sizes as tensors, which cannot be compared with numbers.
        traced = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        if not traced and image.shape[1:] not in (shape, (math.prod(shape),)):
            sides = ", ".join(map(str, shape))
            raise ValueError(
                f"{name} must have the shape (B, {sides}) or (B, {math.prod(shape)}), got {tuple(image.shape)}"
            )
        if isinstance(self.features, nn.Identity):
            return image.flatten(1)
        extracted: Tensor = self.features(image.reshape(-1, 1, *shape))
        return extracted.flatten(1)

    def slides_as_pixels(self) -> bool:
        """Whether pixels reach the relation units unchanged, so that units may slide by convolution."""
        return isinstance(self.features, nn.Identity) and self.model_spec.contrast is None

    def rescale_(self) -> None:
        """Remove from the relation's weights the size that means nothing, if they have one; no answer changes."""
        self.relation.rescale_()

    def parameter_count(self) -> int:
        """Number of learnable numbers.

        >>> from caunet.models import create_model
        >>> create_model("ctn", "rotation").parameter_count()
        692205
        """
        return sum(p.numel() for p in self.parameters())

    def nonzero_count(self) -> int:
        """Number of learnable numbers that are not zero: what a pruned network is made of."""
        return sum(int(p.count_nonzero()) for p in self.parameters())

    def multiply_adds(self, *, sparse: bool = False) -> int:
        """Multiply-adds to infer one z, in all linear maps and products of factors; if ``sparse``, without those with
        a weight of zero.

        Relation units are counted as they are computed (:meth:`caunet.nn.Relation.multiply_adds`). What depends on
        weights alone, squares of pixels, PReLU, exponentials and normalizations are not counted.
        """
        linear = [m.weight for m in self.decoder if isinstance(m, nn.Linear)]
        features = 0 if self.model_spec.features is None else 2 * self._features_multiply_adds()
        if sparse:
            return (
                features + self.relation.sparse_multiply_adds() + sum(int(w.count_nonzero()) for w in linear)
            )
        return features + self.relation.multiply_adds() + sum(w.numel() for w in linear)

    def _features_multiply_adds(self) -> int:
        """Of one run of a custom f: linear and convolution layers, counted by forward hooks."""
        total = 0

        def count(module: nn.Module, _: Any, output: Tensor) -> None:
            nonlocal total
            weight = module.weight
            assert isinstance(weight, Tensor)
            total += output.numel() * weight[0].numel()

        counted = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
        handles = [m.register_forward_hook(count) for m in self.features.modules() if isinstance(m, counted)]
        try:
            feature_count(self.features, self.model_spec.patch_shape)
        finally:
            for handle in handles:
                handle.remove()
        return total


def equal_contrast(a: Tensor, b: Tensor, contrast: float, dim: int = 1) -> tuple[Tensor, Tensor]:
    """a (B, I) and b (B, J) minus their common mean, times the factor that makes their joint deviation ``contrast``.

    With ``dim`` 0 a pair is a column: a (I, B) and b (J, B).

    What relates the two stays: a pair under one gain and one offset becomes the same pair. (Standardizing each
    patch by itself would turn what moved across its border into a change of all its pixels.)

    >>> a, b = torch.tensor([[0.0, 2.0]]), torch.tensor([[4.0, 2.0]])
    >>> equal_contrast(a, b, 1.0)
    (tensor([[-1.4142,  0.0000]]), tensor([[1.4142, 0.0000]]))
    """
    mean = 0.5 * (a.mean(dim, keepdim=True) + b.mean(dim, keepdim=True))
    a, b = a - mean, b - mean
    variance = 0.5 * (a.square().mean(dim, keepdim=True) + b.square().mean(dim, keepdim=True))
    factor = contrast * torch.rsqrt(variance + CONTRAST_FLOOR**2)
    return a * factor, b * factor


def feature_count(features: nn.Module, patch_shape: tuple[int, ...]) -> int:
    """How many numbers ``features`` makes of a patch, found by a run on zeros."""
    like = next(features.parameters(), torch.empty(0))
    was_training = features.training
    features.eval()  # batch norm: statistics must not see the zeros
    try:
        with torch.no_grad():
            made: Tensor = features(torch.zeros(1, 1, *patch_shape, device=like.device, dtype=like.dtype))
    finally:
        features.train(was_training)
    return made.flatten(1).shape[1]


def _build_relation(spec: ModelSpec, generator: torch.Generator | None) -> Relation:
    """The relation units of ``spec``, drawn from ``generator``."""
    options = {"units": spec.units, "rank": spec.rank, "nonnegative": spec.nonnegative}
    relation = spec.relation_class.create(spec.inputs, spec.inputs, options, **spec.relation_options)
    relation.reset_parameters(generator, reference_rank=_REFERENCE_RANK)
    return reparametrize(relation, spec.parametrization)


def _build_decoder(spec: ModelSpec, inputs: int, generator: torch.Generator | None) -> nn.Sequential:
    """g: linear layers with one-parameter PReLUs between."""
    layers: list[nn.Module] = []
    for fan_in, out in itertools.pairwise([inputs, *spec.hidden, spec.dim]):
        layers += [nn.Linear(fan_in, out, bias=spec.bias), nn.PReLU()]
    decoder = nn.Sequential(*layers[:-1])
    initialize_(decoder, spec.initialization, generator)
    return decoder
