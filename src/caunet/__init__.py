"""caunet estimates the transformation between two images, and trains the networks that do it.

The paper's ideas stand on their own (:mod:`caunet.functional`, :mod:`caunet.nn`, :mod:`caunet.optim`); what is built
from them is a name away:

>>> import caunet
>>> model = caunet.create_model("can", "rotation")
>>> model.parameter_count()
330703
"""

import lazy_loader

__version__ = "0.1.0"

# The public names stand in __init__.pyi, where type checkers read them too. Each is imported when it is first used,
# so that `import caunet` costs next to nothing.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
