"""Small helpers that several modules need."""

import functools
import importlib
import inspect
import math
import numbers
import operator
import sys
import warnings
from collections.abc import Callable, Collection, Iterable
from typing import Any

import keras
import numpy as np

from dselectk_keras._keras import is_in_backward_pass

# A tensor of any backend, or what Keras makes one of. Keras has no type for it.
Tensor = Any
# What `keras.initializers.get` and `keras.activations.get` know: a name, a config, an
# object, or a function.
Initializer = Any
Activation = Any
Shape = tuple[Any, ...]


# The kinds of arguments that a caller can name.
NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
# More would take all memory, or hours, before anything else fails.
MAX_EXPERTS = 2**16
MAX_COUNT = 2**32 - 1
LONGEST = 200  # Of a value in an error.
# Torch keeps seeds in signed integers of 32 bits.
NUM_SEEDS = 2**31
BOUNDS = {
    "above": (operator.gt, "above"),
    "minimum": (operator.ge, "at least"),
    "below": (operator.lt, "below"),
    "maximum": (operator.le, "at most"),
}


def as_python(value: Any) -> Any:
    """Convert a scalar of NumPy to one of Python; return anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def shown(value: Any) -> str:
    """Show a value in an error, in one short line."""
    text = " ".join(repr(as_python(value)).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def check_count(
    name: str, value: Any, minimum: int = 1, maximum: int = MAX_COUNT
) -> int:
    """Convert a setting to an `int`, or raise an error if it is none or off limits."""
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or type(value) is bool or count < minimum:
        kind = "a positive integer" if minimum == 1 else f"an integer >= {minimum}"
        raise ValueError(f"`{name}` must be {kind}. Received: {name}={shown(value)}.")
    if count > maximum:
        raise ValueError(
            f"`{name}` must be at most {maximum:,}. Received: {name}={count:,}."
        )
    return count


def check_widths(name: str, value: Any) -> list[int]:
    """List the widths of layers, given as one integer or several, or raise an error."""
    widths = value if isinstance(value, (list, tuple)) else [value]
    return [check_count(name, width) for width in widths]


def check_shape(name: str, shape: Any, rank: int = 1) -> None:
    """Raise an error unless this is a shape of `rank` axes or more, the batch first.

    Sizes may be unknown.
    """
    try:
        sizes = [1 if size is None else operator.index(size) for size in shape]
    except TypeError:
        sizes = []
    if len(sizes) < rank or min(sizes[1:], default=1) < 1:
        raise ValueError(
            f"`{name}` must be a shape with positive sizes and {rank} or more axes, "
            f"such as (None, 8). Received: {name}={shown(shape)}."
        )


def check_number(name: str, value: Any, **bounds: float) -> Any:
    """Convert a setting to a finite number within the `BOUNDS`, or raise an error."""
    item = as_python(value)
    number: Any = item
    if (
        not isinstance(item, numbers.Real)
        or type(number) is bool
        or not abs(number) <= sys.float_info.max
        or not all(BOUNDS[kind][0](number, bound) for kind, bound in bounds.items())
    ):
        wanted = [f"{BOUNDS[kind][1]} {bound}" for kind, bound in bounds.items()]
        raise ValueError(
            f"`{name}` must be a finite number{' ' * bool(wanted)}"
            f"{' and '.join(wanted)}. Received: {name}={shown(value)}."
        )
    # No tensor takes a larger integer.
    return number if abs(number) < 2**63 else float(number)


def get_from(module: Any, name: str, value: Any) -> Any:
    """Call the `get` of a module of Keras; an error names the argument."""
    try:
        return module.get(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be known to `{module.__name__}`. "
            f"Received: {name}={shown(value)}. {error}"
        ) from error


def infer_outputs(layer: keras.Layer, args: tuple, kwargs: dict) -> Any:
    """Infer the outputs of a layer by tracing its `call`, with the errors of `call`.

    Keras would put a text on `compute_output_spec` before them.
    """
    try:
        return keras.Operation.compute_output_spec(layer, *args, **kwargs)
    except ValueError as error:
        own = str(error).rpartition("Error encountered:\n\n")[2]
        raise ValueError(own).with_traceback(error.__traceback__) from None


def check_keywords(cls: type, keywords: Iterable[str]) -> None:
    """Raise an error for arguments that a functional model does not have.

    Keras takes a class for one by its `*args` and `**kwargs`, and ignores others.
    """
    known = "inputs", "outputs", "name", "trainable"
    for name in keywords:
        if name not in known:
            raise TypeError(
                f"{cls.__name__}.__init__() got an unexpected keyword argument {name!r}"
            )


def check_choice(name: str, value: Any, choices: Collection) -> None:
    """Raise an error for a setting that is not one of the choices."""
    if value not in [*choices]:  # Not all values have a hash.
        known = ", ".join(repr(choice) for choice in choices)
        raise ValueError(
            f"`{name}` must be one of {known}. Received: {name}={shown(value)}."
        )


def check_flags(**flags: Any) -> None:
    """Raise an error for settings that are not booleans."""
    for name, value in flags.items():
        check_choice(name, value, (True, False))


def check_type(name: str, value: Any, kind: Any, wanted: str) -> None:
    """Raise an error for a setting of another type than is wanted."""
    if not isinstance(value, kind):
        raise ValueError(f"`{name}` must be {wanted}. Received: {name}={shown(value)}.")


def check_integers(name: str, values: Any, minimum: int, maximum: int) -> list:
    """List integers, or lists of them, from an array, or raise an error."""
    array = values if isinstance(values, np.ndarray) else np.array(values, dtype=object)
    if not (array.ndim and array.size):
        raise ValueError(
            f"`{name}` must hold one integer or more. Received: {name}={shown(values)}."
        )
    # Of an array of integers, the least and the largest tell.
    ends = array.dtype.kind in "iu"
    for value in (array.min(), array.max()) if ends else array.flat:
        check_count(name, value, minimum, maximum)
    return array.tolist()


def convert(name: str, value: Any, function: Callable[[Any], Any]) -> Any:
    """Convert a setting by a function; an error of any type names the setting."""
    try:
        return function(value)
    except Exception as error:  # Backends raise errors of many kinds.
        raise ValueError(
            f"`{name}` cannot be used. Received: {name}={shown(value)}. {error}"
        ) from error


def optional_import(*modules: str, extra: str, purpose: str) -> Any:
    """Import modules that an extra of this package installs, and return the first."""
    try:
        first, *_ = (importlib.import_module(module) for module in modules)
    except ImportError as error:
        packages = " and ".join(module.partition(".")[0] for module in modules)
        raise ImportError(
            f"{purpose} needs {packages}. Received: {error}. "
            f'Run: pip install "dselectk-keras[{extra}]", or in a copy of the '
            f'repository: pip install ".[{extra}]".'
        ) from error
    return first


def num_trained(layer: Any) -> int:
    """The number of trainable parameters, without counters of steps."""
    return sum(math.prod(variable.shape) for variable in layer.trainable_variables)


def add_counter(
    layer: Any, name: str, shape: Shape = (), initializer: Initializer = "zeros"
) -> Any:
    """Add integers to a layer that are not trained, and begin at 0 by default."""
    # As in Keras' optimizers: TensorFlow keeps int32 variables on the host.
    return layer.add_weight(
        name=name, shape=shape, dtype="int", initializer=initializer, trainable=False
    )


def is_concrete(tensor: Tensor) -> bool:
    """Check whether a tensor has values; one of a traced function has none."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return hasattr(tensor, "numpy")
    if backend == "jax":
        from jax.core import Tracer  # pyright: ignore[reportMissingImports]

        return not isinstance(tensor, Tracer)
    if backend == "torch":
        import torch  # pyright: ignore[reportMissingImports]

        return tensor.device.type != "meta" and not torch.compiler.is_compiling()
    return False


class CalledOnce:
    """Leaves a layer that counts steps out of a `keras.RematScope` on torch.

    There the second call, in the backward pass, would change variables again.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer, but not a second time in the backward pass."""
        if is_in_backward_pass():
            raise RuntimeError(
                "On torch, a layer with gates cannot be evaluated again in the "
                "backward pass: it would count the step twice and draw other random "
                f"numbers. Received: a second call of {self!r}, by a "
                "`keras.RematScope` in which the model was made, or by "
                "`torch.utils.checkpoint`. Make the model outside of the scope."
            )
        parent: Any = super()
        return parent.__call__(*args, **kwargs)

    def rematerialized_call(self, layer_call: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what Keras calls in a `keras.RematScope`."""
        parent: Any = super()
        remat = parent.rematerialized_call(layer_call, *args, **kwargs)
        if remat is layer_call or keras.backend.backend() != "torch":
            return remat
        warnings.warn(
            "On torch, a `keras.RematScope` leaves out layers with gates, which would "
            "count each step twice and draw other random numbers. If the model is made "
            "in the scope too, it cannot be trained: make it outside of the scope.",
            stacklevel=2,
        )
        return layer_call


class Configured:
    """Makes configs of the arguments of `__init__`, and objects of these."""

    def get_config(self) -> dict[str, Any]:
        """The arguments of `__init__`."""
        parent: Any = super()
        config = parent.get_config() if isinstance(self, keras.Layer) else {}
        return {**config, **init_arguments(self, argument_names(type(self)))}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make an object from what `get_config` returned."""
        parent: Any = super()
        own = {
            name: _deserialized(config[name])
            for name in argument_names(cls)
            if isinstance(config.get(name), (dict, list))
        }
        return parent.from_config({**config, **own})


def init_arguments(instance: Any, names: Iterable[str]) -> dict[str, Any]:
    """The arguments of `__init__` for a config, from attributes of the same names."""
    return {name: serialize_argument(getattr(instance, name), name) for name in names}


@functools.cache
def argument_names(cls: Any) -> tuple[str, ...]:
    """List the arguments of a class, and of base classes to which it passes `kwargs`.

    Those that have no name for the caller are left out, and those of Keras.
    """
    names = []
    for kind in cls.__mro__:
        if kind.__module__.startswith("keras."):
            break
        if "__init__" in vars(kind):
            parameters = inspect.signature(kind.__init__).parameters.values()
            kinds = {each.kind for each in parameters}
            names += [each.name for each in parameters if each.kind in NAMED]
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                break
    return tuple(dict.fromkeys(name for name in names if name != "self"))


def serialize_argument(value: Any, name: str) -> Any:
    """Convert a schedule, a layer or another callable to JSON; leave the rest as it is.

    A function that is not registered with Keras raises an error: it could not be found
    when the model is loaded. The error contains the argument's name.
    """
    if not callable(value):
        return value
    function = getattr(value, "__name__", type(value).__name__)
    savable = hasattr(value, "get_config") or (
        hasattr(value, "__name__")
        and keras.saving.get_registered_name(value) != function
    )
    if not savable:
        raise ValueError(
            f"`{name}` is a function that is not registered with Keras "
            f"({function!r}) and cannot be saved. Pass a number, an object of Keras, "
            "or a schedule such as `dselectk_keras.Ramp`; or register the function "
            "with `keras.saving.register_keras_serializable`."
        )
    return keras.saving.serialize_keras_object(value)


def _deserialized(value):
    """Deserialize a config, or a list of them; return anything else unchanged."""
    if isinstance(value, list):
        return [_deserialized(each) for each in value]
    is_config = isinstance(value, dict) and "class_name" in value
    return keras.saving.deserialize_keras_object(value) if is_config else value


def with_name(kwargs: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Add a numbered default name to the arguments of a layer, not such as `mm_o_e`."""
    if kwargs.get("name"):
        return kwargs
    number = keras.backend.get_uid(prefix)
    return {**kwargs, "name": prefix if number == 1 else f"{prefix}_{number - 1}"}


def unmasked(values: Any) -> Any:
    """Put NaN where an array of NumPy is masked; return other values as they are."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    dtype = values.dtype if values.dtype.kind == "f" else "float64"
    masked: Any = values.astype(dtype)
    return masked.filled(np.nan)
