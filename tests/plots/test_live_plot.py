"""A figure follows the training, and the training does not notice."""

import sys
import types

import keras
import numpy as np
import pytest
from matplotlib import pyplot as plt
from PIL import Image

import dselectk_keras as dk
from dselectk_keras.plots import LivePlot, plot_gate_weights

X, Y = np.random.default_rng(0).normal(size=(2, 16, 3))


def train(epochs, recorder, *others):
    keras.utils.set_random_seed(0)
    model = dk.build_multitask_model(3, ["a", "b"], gate=dk.DSelectKGate(2))
    model.compile(keras.optimizers.Adam(0.05))
    callbacks = [recorder, *others]
    model.fit(X, Y[:, :2], batch_size=8, epochs=epochs, verbose=0, callbacks=callbacks)
    return model.get_weights()


def frames(path):
    with Image.open(path) as image:
        return image.n_frames


def test_the_gif_has_a_frame_per_redraw_and_the_training_is_the_same(tmp_path):
    recorder, path = dk.GateRecorder(every=1), tmp_path / "gates.gif"
    drawn = []

    def draw():
        drawn.append(len(recorder.history.steps))
        return plot_gate_weights(recorder.history)

    open_before = plt.get_fignums()
    live = LivePlot(draw, path, every=2)
    watched = train(5, recorder, live)
    # Before the first step of each epoch, and a record more at the end of it. The fifth
    # epoch is no second one, but the last.
    assert len(drawn) == 3
    assert drawn == sorted({*drawn})
    assert frames(path) == 3
    assert plt.get_fignums() == open_before
    for ours, theirs in zip(watched, train(5, dk.GateRecorder(every=1)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # A second training begins a new file, and draws its last epoch once.
    train(2, recorder, live)
    assert len(drawn) == 4
    assert frames(path) == 1


def test_in_a_notebook_each_figure_replaces_the_one_before(monkeypatch):
    shown = []
    handle = types.SimpleNamespace(update=lambda figure: shown.append(("new", figure)))

    def display(figure, display_id):
        shown.append(("first", figure))
        return handle

    ipython = types.SimpleNamespace(
        get_ipython=lambda: types.SimpleNamespace(kernel=True),
        display=types.SimpleNamespace(display=display),
    )
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    train(2, dk.GateRecorder(), LivePlot(plt.figure))
    assert [how for how, _ in shown] == ["first", "new"]
    # A terminal shows nothing.
    ipython.get_ipython = lambda: None
    train(1, dk.GateRecorder(), LivePlot(plt.figure))
    assert len(shown) == 2


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="`draw` must be a function that returns a f"):
        LivePlot(plt.subplots()[0])
    with pytest.raises(ValueError, match="`every` must be"):
        LivePlot(plt.figure, every=0)
    plt.close("all")
