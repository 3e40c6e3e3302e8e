"""Public things of one kind, each registered once, beside its definition."""

import importlib
import pkgutil

import keras


class Registry(dict):
    """A dict of classes or functions by name, filled by a decorator.

    A class is registered with Keras as well, so that models with it can be loaded.

    Args:
        kind: What the things are called in errors.

    Example:
        >>> SHAPES = Registry("shape")
        >>> @SHAPES.register("round")
        ... def circle():
        ...     return "o"
        >>> SHAPES.find("round")()
        'o'
    """

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def register(self, name):
        """A decorator that registers what it decorates under a name."""

        def add(thing):
            if name in self:
                raise ValueError(f"There is a {self.kind} {name!r} already.")
            if isinstance(thing, type):
                keras.saving.register_keras_serializable("dselectk_keras")(thing)
            self[name] = thing
            return thing

        return add

    def find(self, name):
        """The thing of a name, or an error that lists the names."""
        if name not in self:
            raise ValueError(
                f"There is no {self.kind} of the name {name!r}. "
                f"Known names: {', '.join(self)}."
            )
        return self[name]

    def classes(self):
        """The registered things by their own names, such as class names."""
        return {thing.__name__: thing for thing in self.values()}


def import_modules(package, path):
    """Import every public module of a package, so that it registers what it defines.

    Args:
        package: The name of the package.
        path: Its `__path__`.
    """
    for module in pkgutil.iter_modules(path):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package}.{module.name}")
