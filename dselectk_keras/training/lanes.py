"""The copies that a program is training."""

import numpy as np

from dselectk_keras.training.batches import Batches
from dselectk_keras.training.copies import weights_of
from dselectk_keras.training.traced_epoch import num_samples


class Lanes:
    """The places of a program, each of which trains one copy after another.

    Args:
        group: The `Group` of the copies.
        data: A `Data`.
    """

    def __init__(self, group, data):
        import jax  # pyright: ignore[reportMissingImports]

        first = group.members[0]
        self.group = group
        self.data = data
        self.running = {}
        self.state = None
        self._batches = {}
        self._numbers = [
            np.stack([first.numbers[place]] * group.lanes) for place in group.varying
        ]
        self._order = np.zeros((group.lanes, num_samples(data.train)), "int32")

        def place(state, own, lane):
            return jax.tree.map(lambda many, one: many.at[lane].set(one), state, own)

        self._place = jax.jit(place, donate_argnums=0)

    def fill(self, queue):
        """Give each free lane the next copy.

        Args:
            queue: A deque of `Member`.
        """
        import jax  # pyright: ignore[reportMissingImports]

        for lane in range(self.group.lanes):
            if lane in self.running:
                continue
            try:
                copy, state, numbers = queue.popleft()
            except IndexError:
                return
            self.running[lane] = copy
            self._batches[lane] = Batches(
                self.data.train, self.data.batch_size, copy.seed
            )
            if lane == 0 and len(self.running) == 1:
                # The other lanes get theirs in their turn, if there are any.
                first = jax.tree.map(lambda a: np.stack([a] * self.group.lanes), state)
                self.state = jax.device_put(first)
            else:
                self.state = self._place(self.state, state, lane)
            for column, place in zip(self._numbers, self.group.varying, strict=True):
                column[lane] = numbers[place]

    def arguments(self):
        """State, numbers and order for the next epoch of all copies."""
        for lane in self.running:
            self._order[lane] = self._batches[lane].order
            self._batches[lane].shuffle()
        return self.state, self._numbers, self._order

    def weights(self, lane):
        """What the model in a lane predicts with, as arrays of their own."""
        return [np.array(value[lane]) for values in self.state[:2] for value in values]

    def load(self, lane, model):
        """Bring a model up to date with its lane."""
        variables = [*weights_of(model), *model.optimizer.variables]
        values = [value[lane] for values in self.state for value in values]
        for variable, value in zip(variables, values, strict=True):
            variable.assign(np.array(value))
