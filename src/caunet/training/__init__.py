"""Training: configuration, the loop, checkpoints, several processes."""

from caunet.training.config import PROFILES, TrainConfig
from caunet.training.loop import TrainResult, load_sources, make_optimizer, train
from caunet.training.update import Update

__all__ = ["PROFILES", "TrainConfig", "TrainResult", "Update", "load_sources", "make_optimizer", "train"]
