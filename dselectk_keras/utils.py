"""Small things that several floors need."""

import os
from typing import Any

import keras


def check_count(name, value):
    """Refuse a setting that is not a positive integer.

    Args:
        name: The setting's name, for the error.
        value: Its value.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
        raise ValueError(
            f"`{name}` must be a positive integer. Received: {name}={value!r}."
        )


def num_cores():
    """How many cores this process may use, which may be fewer than there are."""
    allowed = getattr(os, "sched_getaffinity", None)  # Not on every system.
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def sum_over_replicas(values) -> Any:
    """Sum tensors over the replicas of `tf.distribute`; elsewhere, give them as is.

    A sum over a replica's part of the batch becomes the sum over the whole batch, and
    a loss made of such sums is the same on all replicas. Divided by their number, as
    Keras divides each replica's loss, it has the gradients of one process.

    Replicas are threads that take turns here. Python state that they share, such as
    what `add_loss` keeps in a layer, may be another replica's afterwards.

    Args:
        values: A tensor or a list of some, such as sums over the batch.

    Returns:
        The same, summed.
    """
    if keras.backend.backend() != "tensorflow":
        return values  # JAX sums over all devices where it sums over the batch.
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return values
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def revive(value) -> Any:
    """The object that a serialized config stands for; anything else as it is."""
    if isinstance(value, dict) and "class_name" in value:
        return keras.saving.deserialize_keras_object(value)
    return value


def with_name(kwargs, prefix):
    """Layer arguments with a name as Keras makes them, from a prefix of ours.

    Keras' own would be `mm_o_e` for `MMoE`.

    Args:
        kwargs: Arguments of `keras.Layer`, with or without a name.
        prefix: The name of the first such layer.

    Returns:
        The arguments, with a name.
    """
    if kwargs.get("name"):
        return kwargs
    number = keras.backend.get_uid(prefix)
    return {**kwargs, "name": prefix if number == 1 else f"{prefix}_{number - 1}"}
