"""A kind says what the output, the labels, the loss and the metrics of a task are."""

import keras
import numpy as np
import pytest
from checks import assert_close
from helpers import numbers, refusals
from keras import ops

from dselectk_keras import Task, build_multitask_model, check_labels
from dselectk_keras.models.kinds import KINDS, Kind

pytestmark = pytest.mark.backend_independent

X = numbers((6, 3))
CLASSES = np.array([0, 1, 2, 0, 1, 2.0])


def brier(y, p):
    return ops.mean(ops.square(y - p), axis=-1)


ENTROPY = keras.losses.SparseCategoricalCrossentropy
WRAPPED = keras.metrics.MeanMetricWrapper(brier)


@pytest.mark.parametrize(
    ("kind", "loss", "metrics", "widths"),
    [
        ("regression", "mse", (), {1}),
        ("binary", None, None, {1}),
        ("binary", brier, ("AUC", keras.metrics.F1Score()), {1}),
        ("multiclass", None, None, {1}),
        # The name of an object is the user's.
        ("multiclass", ENTROPY(name="ce"), (), {1}),
        ("multiclass", keras.losses.CategoricalCrossentropy(name="sparse"), (), {3}),
        ("multiclass", keras.losses.categorical_crossentropy, ("mse",), {3}),
        ("multiclass", keras.losses.kl_divergence, (brier,), {3}),
        ("multiclass", brier, (), {1, 3}),
        ("multiclass", brier, (WRAPPED, keras.metrics.MeanIoU(3)), {1, 3}),
        ("multiclass", brier, (keras.metrics.SparseCategoricalAccuracy(),), {1}),
    ],
)
def test_the_loss_and_the_metrics_say_how_wide_labels_are(kind, loss, metrics, widths):
    number = 3 if kind == "multiclass" else None
    task = Task("a", kind, number, loss=loss, metrics=metrics)
    assert task.label_widths == widths


def of_classes(**settings):
    return build_multitask_model(3, [Task("kind", "multiclass", 3, **settings)])


test_functions_of_other_labels_are_refused = refusals(
    *(
        (Task, r"for class indices, .*task 'a', ", {"name": "a", **given})
        for given in [
            {"kind": "binary", "loss": "categorical_crossentropy"},
            {"metrics": "CategoricalAccuracy"},
            *(
                {"kind": "multiclass", "num_classes": 3, **functions}
                for functions in [
                    {"metrics": "categorical_accuracy"},
                    {"metrics": keras.metrics.categorical_accuracy},
                    {"loss": ENTROPY(name="ce"), "metrics": "TopKCategoricalAccuracy"},
                    {"loss": "categorical_crossentropy"},
                    {"loss": "mse"},
                ]
            ),
        ]
    ),
    (
        lambda: check_labels(of_classes(), X, {"kind": np.eye(3)[[0, 1, 2] * 2]}),
        r"'kind' .*\(batch,\) or \(batch, 1\)\. Received: \(6, 3\)\. Class indices",
    ),
    *(
        (
            lambda y: check_labels(of_classes(loss="mse", metrics="mae"), X, y),
            r"'kind' must have the shape \(batch, 3\)\. Received: .* others, such as",
            (y,),
        )
        for y in (CLASSES[:, None], {"kind": CLASSES})
    ),
)


@pytest.mark.parametrize("loss", [None, "mse", "hinge", brier])
def test_binary_labels_are_between_0_and_1_whatever_the_loss_is(loss):
    model = build_multitask_model(3, [Task("click", "binary", loss=loss)])
    check_labels(model, X, CLASSES / 2)
    with pytest.raises(ValueError, match=r"'click' must be between 0 and 1.*: 2 in"):
        check_labels(model, X, CLASSES)


@pytest.mark.every_backend
@pytest.mark.parametrize("loss", ["dice", "tversky"])
def test_a_loss_of_a_whole_batch_is_refused(loss):
    model = build_multitask_model(3, [Task("a", "binary", loss=loss)])
    model.compile("sgd")
    with pytest.raises(
        ValueError, match=rf"number for each label.*'a'.*\(\) of .*{loss}"
    ):
        model.train_on_batch(X, CLASSES / 2)


class Count(Kind):
    """Numbers of events."""

    activation = "exponential"
    loss = "poisson"
    metrics = ("poisson",)

    def limits(self, width):
        return 0, np.inf


@pytest.mark.every_backend
def test_a_kind_of_your_own_says_what_differs(monkeypatch):
    monkeypatch.setitem(KINDS, "count", Count)
    task = Task("visits", "count", tower="sum")
    assert Task.from_config(task.get_config()) == task
    model = build_multitask_model(3, [task], experts=1)
    model.compile("sgd")
    outputs = model.predict(X, verbose=0)["visits"][:, 0]
    assert (outputs > 0).all()
    report = model.evaluate(X, CLASSES, verbose=0, return_dict=True)
    # Keras adds 1e-7 to the rate.
    expected = np.mean(outputs - CLASSES * np.log(outputs))
    assert_close([report["visits_loss"], report["visits_poisson"]], expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"'visits' must be between 0 and inf.*: -1"):
        model.fit(X, CLASSES - 1)
