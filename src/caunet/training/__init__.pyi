from .config import PROFILES as PROFILES
from .config import TrainConfig as TrainConfig
from .loop import TrainResult as TrainResult
from .loop import load_sources as load_sources
from .loop import make_optimizer as make_optimizer
from .loop import train as train
from .update import Update as Update
