"""Numbers of a model that are variables."""

import keras


class Settings(keras.Layer):
    """Numbers by name that are variables: models with others share a program."""

    def __init__(self, **values):
        super().__init__(name="settings", dtype="float32")
        self.numbers = {
            name: self.add_weight((), keras.initializers.Constant(value), name=name)
            for name, value in values.items()
        }
        self.trainable = False
        self.built = True

    def schedule(self, name):
        """A schedule that is a number at all steps."""
        # A product is a tensor on every backend.
        return lambda _: 1.0 * self.numbers[name]
