"""caunet learns how two images are related, and tells.

The paper's ideas stand on their own (:mod:`caunet.functional`, :mod:`caunet.nn`, :mod:`caunet.optim`); what is built
from them is a name away:

>>> import caunet
>>> model = caunet.create_model("can", "rotation")
>>> model.parameter_count()
330703
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caunet import data, functional, geometry, metrics, nn, optim, tasks
    from caunet.data import PairSource, load_images
    from caunet.estimation import Estimate, Estimator, estimate, estimate_many
    from caunet.evaluation import evaluate
    from caunet.models import create_model, list_models, load_pretrained, load_weights, save_weights
    from caunet.optim import HybridOptimizer, MultiplicativeAdam, MultiplicativeUpdate
    from caunet.training import TrainConfig, train

__version__ = "0.1.0"

__all__ = [
    "Estimate",
    "Estimator",
    "HybridOptimizer",
    "MultiplicativeAdam",
    "MultiplicativeUpdate",
    "PairSource",
    "TrainConfig",
    "__version__",
    "create_model",
    "data",
    "estimate",
    "estimate_many",
    "evaluate",
    "functional",
    "geometry",
    "list_models",
    "load_images",
    "load_pretrained",
    "load_weights",
    "metrics",
    "nn",
    "optim",
    "save_weights",
    "tasks",
    "train",
]

# Where each name lives. Names are looked up when they are first used, so that `import caunet` costs next to nothing.
_HOME = {
    "Estimate": "estimation",
    "Estimator": "estimation",
    "HybridOptimizer": "optim",
    "MultiplicativeAdam": "optim",
    "MultiplicativeUpdate": "optim",
    "PairSource": "data",
    "TrainConfig": "training",
    "create_model": "models",
    "estimate": "estimation",
    "estimate_many": "estimation",
    "evaluate": "evaluation",
    "list_models": "models",
    "load_images": "data",
    "load_pretrained": "models",
    "load_weights": "models",
    "save_weights": "models",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"caunet.{_HOME[name]}"), name)
    if name in __all__:
        return importlib.import_module(f"caunet.{name}")
    raise AttributeError(f"module 'caunet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
