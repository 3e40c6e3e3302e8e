"""Sums over the devices that share a batch.

The replicas of `tf.distribute` are threads, each with its own part of the batch. On JAX
a sum over the batch is a sum over all devices already.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import keras


def is_model_parallel() -> bool:
    """Whether variables may be split over devices, as by `expert_layout_map`.

    Computing expert by expert would then send each to all devices.
    """
    distribution = keras.distribution.distribution()
    return isinstance(distribution, keras.distribution.ModelParallel)


def num_replicas() -> int:
    """The number of replicas of `tf.distribute` that share a batch; 1 elsewhere.

    Keras averages the losses of the replicas, so that a loss that is a sum over the
    batch has to be multiplied by this number.
    """
    context = _replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def sum_over_replicas(values: Any) -> Any:
    """Sum tensors over the replicas of `tf.distribute`; elsewhere, give them as is.

    A sum over a replica's part of the batch becomes the sum over the whole batch, and
    a loss made of such sums is the same on all replicas. Divided by their number, as
    Keras divides each replica's loss, it has the gradients of one process.

    Replicas take turns here. Python state that they share, such as what `add_loss`
    keeps in a layer, may be another replica's afterwards.
    """
    context = _replica_context()
    return values if context is None else context.all_reduce("SUM", values)


# Replicas are threads: each opens the batch for itself.
_OPEN = threading.local()


@contextlib.contextmanager
def whole_batch() -> Iterator[None]:
    """Let `batch_total` and `batch_rows` see the batch of all replicas.

    A gate cannot open the batch while the model runs: replicas would take turns between
    two calls of `add_loss`, and mix up what layers keep.
    """
    _OPEN.batch = True
    try:
        yield
    finally:
        _OPEN.batch = False


def batch_is_open() -> bool:
    """Whether `whole_batch` is in use here."""
    return getattr(_OPEN, "batch", False)


def batch_total(values: Any) -> Any:
    """Add up sums over the parts of all replicas, if the batch is open."""
    return sum_over_replicas(values) if batch_is_open() else values


def batch_rows(values: list) -> list:
    """Gather the rows of all replicas from tensors, if the batch is open."""
    context = _replica_context()
    if context is None or not batch_is_open():
        return values
    import tensorflow as tf

    # What is gathered has lost its static shape.
    return [
        tf.ensure_shape(gathered, [None, *value.shape[1:]])
        for value, gathered in zip(values, context.all_gather(values, 0), strict=True)
    ]


def _replica_context():
    """The context of a replica in TensorFlow; `None` if this process has the batch."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context if context and context.num_replicas_in_sync > 1 else None
