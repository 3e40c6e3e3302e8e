"""Streams of tables and of raw columns train as the whole table does."""

import keras
import numpy as np
import pandas as pd
import pytest
from checks import assert_close

import dselectk_keras as dk

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
rng = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": rng.normal(size=40), "s": rng.choice(["x", "y", None], 40)})
LABELS = pd.DataFrame(rng.integers(0, 2, (40, 2)), columns=["buy", "like"])
LABELS = LABELS.astype("float32")
PARTS = [slice(0, 20), slice(20, 40)]


def as_dict(frame):
    return {"a": frame["a"].to_numpy(), "s": frame["s"].to_numpy(object)}


class Parts(keras.utils.PyDataset):
    def __init__(self, convert):
        super().__init__()
        self.convert = convert

    def __len__(self):
        return len(PARTS)

    def __getitem__(self, index):
        return self.convert(FRAME[PARTS[index]]), LABELS[PARTS[index]]


def forever():
    while True:
        for part in PARTS:
            yield FRAME[part], LABELS[part]


def loader():
    data = pytest.importorskip("torch.utils.data")
    columns = FRAME["a"], FRAME["s"].fillna(""), LABELS.to_numpy().copy()
    rows = [
        ({"a": np.float32([a]), "s": s}, y) for a, s, y in zip(*columns, strict=True)
    ]
    return data.DataLoader(rows, 20)


def dataset():
    import tensorflow as tf

    raw = {"a": FRAME["a"].to_numpy("float32"), "s": FRAME["s"].fillna("").tolist()}
    return tf.data.Dataset.from_tensor_slices((raw, LABELS.to_numpy())).batch(20)


def build():
    keras.utils.set_random_seed(0)
    tasks = [dk.Task(name, "binary") for name in LABELS]
    model = dk.build_multitask_model(dk.table_encoder(FRAME), tasks, experts=2)
    model.compile("adam")
    return model


STREAMS = {
    "PyDataset of tables": lambda: (Parts(lambda frame: frame), {}),
    "PyDataset of dicts": lambda: (Parts(as_dict), {}),
    "generator": lambda: (forever(), {"steps_per_epoch": 2}),
    "DataLoader": lambda: (loader(), {}),
}
if ON_TENSORFLOW:
    STREAMS["tf.data"] = lambda: (dataset(), {})


@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_trains_as_the_table(name):
    model = build()
    form = {"epochs": 2, "shuffle": False, "verbose": 0}
    wanted = model.fit(FRAME, LABELS, batch_size=20, **form).history["task_loss"]
    stream, options = STREAMS[name]()
    found = build()
    held_out = dataset() if name == "tf.data" else Parts(as_dict)
    log = found.fit(stream, validation_data=held_out, **form, **options).history
    assert_close(log["task_loss"], wanted, rtol=1e-5)
    last = model.evaluate(FRAME, LABELS, verbose=0, return_dict=True)["task_loss"]
    assert_close(log["val_task_loss"][-1], last, rtol=1e-5)
    if name != "generator":
        predicted = found.predict(stream, verbose=0)["buy"]
        assert_close(predicted, model.predict(FRAME, verbose=0)["buy"], rtol=1e-5)


def test_steps_take_tables_and_dicts():
    losses = []
    for convert in (lambda frame: frame, as_dict):
        model = build()
        x = convert(FRAME)
        losses.append(model.train_on_batch(x, LABELS))
        losses.append(model.test_on_batch(x, LABELS))
        found = model.predict_on_batch(x)["buy"]
        assert_close(found, model.predict(FRAME, verbose=0)["buy"], rtol=1e-5)
    assert_close(losses[:2], losses[2:])
