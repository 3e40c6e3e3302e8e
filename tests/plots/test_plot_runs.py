"""Runs are drawn as given, with their mean and its standard error."""

import numpy as np
import pytest
from helpers import overlapping
from matplotlib import pyplot as plt

from dselectk_keras.plots import plot_runs


def test_runs_mean_and_error_are_drawn():
    figure = plot_runs(
        {"a": [1.0, 3.0, None], "b": [2.0, np.nan]}, highlight="b", label="y"
    )
    (ax,) = figure.axes
    a, b = ax.lines
    np.testing.assert_array_equal(a.get_xydata(), [[1, 0], [3, 0]])
    np.testing.assert_array_equal(b.get_xydata(), [[2, 1]])
    assert a.get_color() != b.get_color()
    # The mean of 1 and 3 is 2, and its standard error sqrt(2) / sqrt(2).
    (bar,) = ax.patches
    ends = bar.get_path().transformed(bar.get_patch_transform()).get_extents()
    assert (ends.x0, ends.x1) == pytest.approx((1.0, 3.0))
    means = [lines.get_paths()[0].get_extents().x0 for lines in ax.collections]
    assert means == [2, 2]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]
    assert ax.get_xlabel() == "y"
    # To two digits of the standard error, which is 1.
    assert [text.get_text() for text in ax.texts] == ["2.0", "2.0"]
    plt.close(figure)


@pytest.mark.parametrize("spread", [1e-4, 1.0, 1e4])
def test_no_label_overlaps_another(spread):
    runs = np.linspace(0, spread, 40).reshape(8, 5)
    names = [f"a method with a long name, {i}" for i in range(8)]
    values = dict(zip(names, 1.0 + runs, strict=True))
    figure = plot_runs(values, label="test loss", title="all methods")
    assert not overlapping(figure)
    plt.close(figure)


def test_axes_may_be_given():
    figure, ax = plt.subplots()
    assert plot_runs({"a": [1.0]}, title="t", ax=ax) is figure
    assert ax.get_title(loc="left") == "t"
    plt.close(figure)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="at least one method"):
        plot_runs({})
    with pytest.raises(ValueError, match="`highlight` must be one of 'a'"):
        plot_runs({"a": [1.0]}, highlight="b")
