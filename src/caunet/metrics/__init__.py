"""How wrong an inferred relation is: three errors, and sums of them that shards share.

Conventions: H (..., 3, 3) maps points of the first image to the second, origin at the patch center, pixels.
All errors are computed in float64 from each sample alone, whatever the dtype of the network.

- *Parameter error*: mean over the dimensions of z of the squared difference (Table II is its mean).
- *Transformation error*: of the unit square's four corners as homogeneous vectors, without division by the
  third coordinate (Section VI-E; Table III is its mean).
- *Corner error*: mean distance in pixels between where the corner pixels of a patch, image or volume go and where
  they are inferred to go, with that division. A corner sent to infinity is infinitely far off.
"""

from caunet.metrics.errors import corner_error, parameter_error, transformation_error
from caunet.metrics.parameters import ParameterSums
from caunet.metrics.sums import ErrorSums

__all__ = ["ErrorSums", "ParameterSums", "corner_error", "parameter_error", "transformation_error"]
