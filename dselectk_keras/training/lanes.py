"""The copies that a program is training at the moment."""

import numpy as np

from dselectk_keras.training.batches import Batches
from dselectk_keras.training.copies import prediction_variables
from dselectk_keras.training.traced_epoch import num_samples


class Lanes:
    """The lanes of a vectorized program, each of which trains one copy after another.

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
        self._varying = [
            np.stack([first.constants[i]] * group.lanes) for i in group.varying
        ]
        self._order = np.zeros((group.lanes, num_samples(data.train)), "int32")

        def set_lane(state, own, lane):
            return jax.tree.map(lambda all_, one: all_.at[lane].set(one), state, own)

        self._set_lane = jax.jit(set_lane, donate_argnums=0)

    def start_copies(self, queue):
        """Start the next copies of a queue of `Member` in the free lanes."""
        import jax  # pyright: ignore[reportMissingImports]

        for lane in range(self.group.lanes):
            if lane in self.running:
                continue
            try:
                copy, state, constants = queue.popleft()
            except IndexError:
                return
            self.running[lane] = copy
            data = self.data
            self._batches[lane] = Batches(data.train, data.batch_size, copy.seed)
            if lane == 0 and len(self.running) == 1:
                # The other lanes are set in later iterations.
                first = jax.tree.map(lambda a: np.stack([a] * self.group.lanes), state)
                self.state = jax.device_put(first)
            else:
                self.set_state(lane, state)
            for column, i in zip(self._varying, self.group.varying, strict=True):
                column[lane] = constants[i]

    def next_arguments(self):
        """State, varying constants and order for the next epoch of all copies."""
        for lane in self.running:
            self._order[lane] = self._batches[lane].order
            self._batches[lane].shuffle()
        return self.state, self._varying, self._order

    def read_weights(self, lane):
        """Copies of the prediction variables of the model in a lane."""
        return [np.array(value[lane]) for values in self.state[:2] for value in values]

    def set_state(self, lane, state):
        """Set the state of a lane: trainable, other and optimizer variables."""
        self.state = self._set_lane(self.state, tuple(state), lane)

    def update_model(self, lane, model):
        """Assign the state of a lane to a model."""
        variables = [*prediction_variables(model), *model.optimizer.variables]
        values = [value[lane] for values in self.state for value in values]
        for variable, value in zip(variables, values, strict=True):
            variable.assign(np.array(value))
