"""Sums over the devices that share a batch.

The replicas of `tf.distribute` are threads, each with its own part of the batch. On JAX
a sum over the batch is a sum over all devices already.
"""

from typing import Any

import keras


def is_model_parallel() -> bool:
    """Whether variables may be split over devices, as by `expert_layout_map`.

    Computing expert by expert would then send each to all devices.
    """
    distribution = keras.distribution.distribution()
    return isinstance(distribution, keras.distribution.ModelParallel)


def is_distributed() -> bool:
    """Whether the devices of JAX share a batch or the variables."""
    return keras.distribution.distribution() is not None


def num_replicas() -> int:
    """The number of replicas of `tf.distribute` that share a batch; 1 elsewhere.

    Keras averages the losses of the replicas, so that a loss that is a sum over the
    batch has to be multiplied by this number.
    """
    if keras.backend.backend() != "tensorflow":
        return 1
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


def _replica_context():
    """The context of a replica in TensorFlow; `None` if this process has the batch."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context if context and context.num_replicas_in_sync > 1 else None
