"""Devices that share a batch.

The replicas of `tf.distribute` are threads, each with its own part of the batch. On JAX
a sum over the batch is a sum over all devices already.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras


def is_model_parallel() -> bool:
    """Check whether variables may be split over devices, as by `expert_layout_map`.

    Computing expert by expert would then send each to all devices.
    """
    distribution = keras.distribution.distribution()
    return isinstance(distribution, keras.distribution.ModelParallel)


def is_on_cpu(tensor: Any) -> bool:
    """Check whether a tensor, or a step that is compiled now, is on a CPU."""
    if keras.backend.backend() == "torch":
        return tensor.device.type == "cpu"
    return keras.distribution.list_devices()[0].lower().startswith("cpu")


def on_each_device(
    function: Callable, layer: keras.Layer, arrays: Sequence[Any]
) -> tuple[Any, Any]:
    """Call a function in a program of JAX on each device's part of a batch.

    It gets the whole batch if `DataParallel` is not set, or does not split it evenly.
    The function, which reads variables of the layer, returns an array with a row for
    each example, and a number or `None`: rows are joined, and numbers are added up.
    """
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.DataParallel):
        return function(*arrays)
    mesh, axis = distribution.device_mesh.backend_mesh, distribution.batch_dim_name
    if mesh.size == 1 or arrays[0].shape[0] % mesh.size:
        return function(*arrays)
    import jax  # pyright: ignore[reportMissingImports]

    def call(values, arrays):
        state = zip(layer.variables, values, strict=True)
        with keras.StatelessScope(state_mapping=list(state)):
            rows, number = function(*arrays)
        return rows, None if number is None else jax.lax.psum(number, axis)

    batch, whole = jax.sharding.PartitionSpec(axis), jax.sharding.PartitionSpec()
    # Without `check_vma`, gradients of variables are summed after the function, not in
    # the branches of its conditions, in which not all devices need to take part.
    split = jax.shard_map(
        call,
        mesh=mesh,
        in_specs=(whole, batch),
        out_specs=(batch, whole),
        check_vma=False,
    )
    return split([variable.value for variable in layer.variables], arrays)


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


def _replica_context():
    """The context of a replica in TensorFlow; `None` if this process has the batch."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context if context and context.num_replicas_in_sync > 1 else None
