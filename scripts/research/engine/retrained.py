"""Train one model for many jobs in turn, without building or compiling it anew."""

import keras
import numpy as np

from dselectk_keras.batches import Batches
from research.engine.side_by_side import make_program, train_side_by_side


class Retrained:
    """A model that is trained again and again, each time from the start.

    To compile a small model takes longer than to train it. Where jobs differ in the
    values of variables and of the data only, one model serves all: the learning rate
    is such a variable. On JAX, an epoch is one program.
    """

    def __init__(self, build, batch_size):
        self._build = build
        self._batch_size = batch_size
        self._program = None
        self.history = {}

    def train(self, data, seed, epochs, *, validation=None, callbacks=(), **settings):
        """Train from the start; `history` has the losses of each epoch, as in `fit`.

        The data are validated on after every epoch. With callbacks, `fit` takes the
        place of the program. Settings are arguments of `build`.
        """
        batches = Batches(data, self._batch_size, seed)
        if self._program is None:
            model = self._build(**settings)
            # This creates all variables.
            model.train_on_batch(*(array[:2] for array in batches.data))
            self._program = make_program(model, self._batch_size)
        program, model = self._program, self._program.model
        keras.utils.set_random_seed(seed)
        fresh = self._build(**settings)
        fresh.optimizer.build(fresh.trainable_variables)
        state = program.read([fresh])
        if validation is not None:
            validation = tuple(validation)
        if callbacks or keras.backend.backend() != "jax":
            program.write(model, state, 0)
            options = {"callbacks": list(callbacks), "shuffle": False, "verbose": 0}
            if validation is not None:
                options |= {
                    "validation_data": validation,
                    "validation_batch_size": len(validation[0]),
                }
            self.history = model.fit(batches, epochs=epochs, **options).history
            return model
        held_out = []
        if validation is not None:
            held_out = [(validation, np.arange(len(validation[0]))[None])]
        orders = _orders(batches, epochs)
        state, found = train_side_by_side(
            program, state, batches.data, orders, held_out
        )
        logs = [own for own, *_ in found]
        for own, *rest in found:
            own |= {f"val_{name}": each for log in rest for name, each in log.items()}
        program.write(model, state, 0)
        self.history = {name: [float(log[name][0]) for log in logs] for name in logs[0]}
        return model


def _orders(batches, epochs):
    for _ in range(epochs):
        yield batches.order[None]
        batches.shuffle()
