"""``caunet export``: a network as one ONNX file."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from caunet.models import RelationNetwork

__all__ = ["Export"]


@dataclass(frozen=True)
class Export:
    """Write a network to one ONNX file (opset 18), for any number of pairs at a time.

    Its inputs are x and y, (batch, patch, patch) float32 in [-0.5, 0.5]; its output is z. ONNX Runtime must answer as
    torch does on 100 pairs, or no file is written. Needs an extra: pip install 'caunet[export]'

    Example: caunet export --model can --task rotation rotation.onnx
    """

    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT.onnx")]
    """The file to write."""
    model: str | None = None
    """The network: ctn, bln, can, or any other whose weights are given."""
    task: str | None = None
    """The task: translation, rotation, scaling, affine, projective."""
    weights: Annotated[str, tyro.conf.arg(metavar="NAME|RUN|FILE")] = "pretrained"
    """Weights, which know their network and task: a name of the package (can-rotation; `caunet weights list`), the
    directory of a run or a .safetensors file. Without: those of the package for --model and --task."""

    def run(self) -> int:
        """Load, translate, check, write."""
        from caunet.export import export_onnx

        model = self._load()
        export_onnx(model, self.out)
        print(f"{self.out}  {model.spec['name']} for {model.spec['task']}, checked on 100 pairs")
        return 0

    def _load(self) -> "RelationNetwork":
        from caunet.models import create_model, load_network

        if self.weights == "pretrained":
            if self.model is None or self.task is None:
                raise ValueError("the network must be named: --model can --task rotation, or --weights FILE")
            return create_model(self.model, self.task, pretrained=True)
        model = load_network(self.weights)
        for option, wanted in (("name", self.model), ("task", self.task)):
            if wanted is not None and wanted != model.spec[option]:
                flag = "--model" if option == "name" else "--task"
                raise ValueError(
                    f"{flag} {wanted}: {self.weights} holds {model.spec['name']} for {model.spec['task']}"
                )
        return model
