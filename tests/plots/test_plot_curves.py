"""Curves are drawn as given, named, and refused if they cannot be."""

import numpy as np
import pytest
from helpers import overlapping, refusals
from matplotlib import pyplot as plt

from dselectk_keras.plots import plot_curves

CURVES = {"up": ([1, 2, 3], [0.0, 0.5, 1.0]), "down": ([1, 2], [1.0, np.nan])}


@pytest.fixture
def axes():
    figure = plot_curves(
        CURVES, x_label="steps", y_label="loss", errors={"up": [0.1, 0.1, 0.2]}
    )
    yield figure.axes[0]
    plt.close(figure)


def test_every_curve_is_drawn_and_named(axes):
    up, down = axes.lines
    np.testing.assert_array_equal(up.get_xydata(), [[1, 0], [2, 0.5], [3, 1]])
    assert np.isnan(down.get_ydata()[1])
    assert [text.get_text() for text in axes.texts] == ["up", "down"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("steps", "loss")
    assert up.get_color() != down.get_color()
    (band,) = axes.collections
    (path,) = band.get_paths()
    assert path.vertices[:, 1].max() == pytest.approx(1.2)
    assert path.vertices[:, 1].min() == pytest.approx(-0.1)


def test_names_do_not_overlap():
    figure = plot_curves({str(i): ([0, 1], [0, 1]) for i in range(6)}, y_label="loss")
    assert len(figure.axes[0].texts) == 6
    assert not overlapping(figure)
    plt.close(figure)


def test_axes_may_be_logarithmic_and_given_and_events_are_vertical_lines():
    figure, ax = plt.subplots()
    settings = {"log": "x", "title": "a", "events": [(2, "decided")]}
    assert plot_curves(CURVES, **settings, ax=ax) is figure
    assert ax.lines[-1].get_xdata() == [2, 2]
    assert "decided" in [text.get_text() for text in ax.texts]
    assert ax.get_xscale() == "log"
    assert ax.get_title(loc="left") == "a"
    plt.close(figure)


def test_a_name_is_at_the_last_point_that_is_drawn():
    x, down = [1, 2, 3], [1.0, 0.5, 0.0]
    figure = plot_curves({"zero": (x, down)}, log="y")
    (text,) = figure.axes[0].texts
    assert text.xy == (2, 0.5)
    figure.canvas.draw()  # Without a warning that the axes have no room.
    plt.close(figure)
    figure = plot_curves({"nan": ([1, 2, np.nan], down)})
    assert figure.axes[0].texts[0].xy == (2, 0.5)
    plt.close(figure)


test_curves_that_cannot_be_drawn_are_refused = refusals(
    (plot_curves, "at least one line", {"curves": {}}),
    (
        plot_curves,
        r"same length\. Received shapes \(2,\) and",
        {"curves": {"a": ([1, 2], [1, 2, 3])}},
    ),
)
