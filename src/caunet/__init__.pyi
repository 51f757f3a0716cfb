# The public names of caunet, and the only list of them: lazy_loader and type checkers both read this file.
from . import data as data
from . import functional as functional
from . import geometry as geometry
from . import metrics as metrics
from . import nn as nn
from . import optim as optim
from . import tasks as tasks
from .data import PairSource as PairSource
from .data import load_images as load_images
from .estimation import Estimate as Estimate
from .estimation import Estimator as Estimator
from .estimation import estimate as estimate
from .estimation import estimate_many as estimate_many
from .evaluation import evaluate as evaluate
from .models import create_model as create_model
from .models import list_models as list_models
from .models import list_pretrained as list_pretrained
from .models import load_network as load_network
from .models import load_pretrained as load_pretrained
from .models import load_weights as load_weights
from .models import prune as prune
from .models import save_weights as save_weights
from .optim import HybridOptimizer as HybridOptimizer
from .optim import MultiplicativeAdam as MultiplicativeAdam
from .optim import MultiplicativeUpdate as MultiplicativeUpdate
from .refinement import refine as refine
from .refinement import refined as refined
from .stacks import Alignment as Alignment
from .stacks import align as align
from .training import TrainConfig as TrainConfig
from .training import train as train
from .volumes import VolumeEstimate as VolumeEstimate
from .volumes import estimate_volume as estimate_volume

__version__: str
