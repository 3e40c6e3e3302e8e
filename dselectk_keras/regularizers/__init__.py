"""Auxiliary losses: scalar terms that a gate or a layer adds to the training loss.

Each regularizer is one module. `@REGULARIZERS.register("name")` on its class makes it
public.
"""

from typing import TYPE_CHECKING, Any

from dselectk_keras.registry import import_modules
from dselectk_keras.regularizers.scheduled import (
    REGULARIZERS,
    ScheduledRegularizer,
    WeightsRegularizer,
)

import_modules(__name__, __path__)
globals().update(REGULARIZERS.classes())

__all__ = ["REGULARIZERS", "ScheduledRegularizer", "WeightsRegularizer"]
__all__.extend(REGULARIZERS.classes())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The registered classes, which type checkers cannot see above."""
