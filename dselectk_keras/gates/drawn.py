"""Gates whose routing is fixed by a number that may be drawn."""

from typing import Any

import numpy as np


class SavesDraw:
    """Mixin: saves the argument that fixes the routing with the weights.

    `None` for this argument draws a number. `drawn_argument` is its name, or `None` if
    nothing is fixed.
    """

    drawn_argument: str | None = None

    def save_own_variables(self, store: Any) -> None:
        """Save the variables, and what was drawn."""
        parent: Any = super()
        parent.save_own_variables(store)
        if self.drawn_argument is not None:
            drawn = getattr(self, self.drawn_argument)
            store[self.drawn_argument] = np.asarray(drawn, "int64")

    def load_own_variables(self, store: Any) -> None:
        """Load the variables, and what was drawn, which older files do not have."""
        values = {key: store[key] for key in store.keys()}  # noqa: SIM118 (no dict)
        drawn = values.pop(self.drawn_argument, None)
        if drawn is not None:
            setattr(self, str(self.drawn_argument), int(np.asarray(drawn)))
        parent: Any = super()
        parent.load_own_variables(values)
