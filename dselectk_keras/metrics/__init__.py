"""Metrics of how gates use experts.

Functions take plain arrays; classes are Keras metrics that accumulate over batches. A
Keras metric is one module here: `@METRICS.register("name")` makes it public.
"""

from typing import TYPE_CHECKING, Any

from dselectk_keras.metrics._base import METRICS
from dselectk_keras.metrics.active_experts import active_experts
from dselectk_keras.metrics.jaccard_index import JaccardIndex, jaccard_index
from dselectk_keras.registry import import_modules

import_modules(__name__, __path__)
globals().update(METRICS.classes())

__all__ = ["METRICS", "JaccardIndex", "active_experts", "jaccard_index"]
__all__.extend(METRICS.classes())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The registered classes, which type checkers cannot see above."""
