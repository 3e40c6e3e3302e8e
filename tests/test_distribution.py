"""Sums over the devices that share a batch; for several see tests/distribution."""

import keras

from dselectk_keras.distribution import num_replicas, sum_over_replicas


def test_one_process_has_the_whole_batch():
    values = keras.ops.array([1.0, 2.0])
    assert sum_over_replicas(values) is values
    assert num_replicas() == 1
