"""Training: configuration, the loop, checkpoints, several processes."""

import lazy_loader

# The names stand in __init__.pyi. Loaded on first use: the command line reads TrainConfig, which needs no torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
