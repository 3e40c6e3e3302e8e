"""Gates: layers that compute weights over the experts and mix their outputs.

Each gate is one module. `@GATES.register("name")` on its class makes it public.
"""

from typing import TYPE_CHECKING, Any

from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.inputs import RouterInputs
from dselectk_keras.gates.registry import GATES, get
from dselectk_keras.gates.routing import Routing
from dselectk_keras.registry import import_modules

import_modules(__name__, __path__)
globals().update(GATES.classes())

__all__ = ["GATES", "Gate", "RouterInputs", "Routing", "get"]
__all__.extend(GATES.classes())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The registered classes, which type checkers cannot see above."""
