"""Networks that infer how two images are related: f, then R, then g (Section II of the paper).

    x ─▶ f ─▶ a ─┐
                 ├─▶ R ─▶ h ─▶ competition ─▶ g ─▶ z
    y ─▶ f ─▶ b ─┘

``spec`` says what a network is, ``network`` is the network, ``registry`` knows networks by name, ``dense`` slides one
over whole images, ``weights`` are its files, ``pretrained`` are the files that come with the package.

>>> import torch
>>> model = create_model("can", "rotation", seed=0)
>>> model(torch.zeros(5, 11, 11), torch.zeros(5, 11, 11)).shape
torch.Size([5, 1])
>>> model.parameter_count()
330703
"""

from caunet.models.dense import DenseRelations
from caunet.models.network import RelationNetwork
from caunet.models.places import load_network
from caunet.models.pretrained import card, list_pretrained, load_pretrained
from caunet.models.pruning import prune
from caunet.models.registry import create_model, describe_model, list_models, register_model
from caunet.models.sparse import SparseNetwork
from caunet.models.spec import ModelSpec
from caunet.models.weights import load_weights, save_weights

__all__ = [
    "DenseRelations",
    "ModelSpec",
    "RelationNetwork",
    "SparseNetwork",
    "card",
    "create_model",
    "describe_model",
    "list_models",
    "list_pretrained",
    "load_network",
    "load_pretrained",
    "load_weights",
    "prune",
    "register_model",
    "save_weights",
]
