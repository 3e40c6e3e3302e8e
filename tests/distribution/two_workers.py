"""One of two workers of TensorFlow, which train with half of each batch.

    python two_workers.py ADDRESS ADDRESS NUMBER

Prints how far the weights and the loss are from those of one process. `fit` of Keras
3.15 fails here, so this trains in a loop (see docs/hosts.md).
"""

import json
import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CONFIG"] = json.dumps(
    {
        "cluster": {"worker": sys.argv[1:-1]},
        "task": {"type": "worker", "index": int(sys.argv[-1])},
    }
)

import keras
import numpy as np
import tensorflow as tf
from helpers import numbers

from dselectk_keras import DenseExperts, SoftmaxGate, build_multitask_model

BATCH, STEPS, DIM = 8, 3, 3
X, Y = numbers((BATCH * STEPS, DIM)), numbers((BATCH * STEPS, 2), seed=1)
Y[1::3, 0] = np.nan


def build():
    keras.utils.set_random_seed(0)
    # A mean over the examples; other penalties are of each worker's part.
    gate = SoftmaxGate(z_reg=0.1)
    model = build_multitask_model(DIM, 2, experts=DenseExperts(4, [4]), gate=gate)
    model.compile(keras.optimizers.SGD(0.1))
    model.optimizer.build(model.trainable_variables)
    return model


def main():
    # The first thing: it waits for the other worker.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = build()
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = policy

    @tf.function
    def step(batch):
        strategy.run(model.train_step, args=(batch,))

    batches = batches.with_options(options)
    for batch in strategy.experimental_distribute_dataset(batches):
        step(batch)
    alone = build()
    for batch in batches:
        alone.train_step(batch)
    both = [
        [*each.get_weights(), each.get_metrics_result()["loss"]]
        for each in (model, alone)
    ]
    differences = [np.abs(a - b).max() for a, b in zip(*both, strict=True)]
    sys.stdout.write(json.dumps(float(max(differences))))


if __name__ == "__main__":
    main()
