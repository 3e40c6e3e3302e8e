"""A figure that follows a training."""

import sys
from collections.abc import Callable
from typing import Any

import keras

from dselectk_keras.plots import style
from dselectk_keras.utils import check_count, check_type, optional_import


class LivePlot(keras.callbacks.Callback):
    """Redraws a figure while `fit` runs, in a notebook and as the frames of a GIF.

    It draws after every `every` epochs, and at the end of the training if the last
    epoch was not drawn. Below the cell of a notebook, each figure replaces the one
    before. The training itself does not change. Put the callback after the
    `GateRecorder` that it draws.

    Args:
        draw: A function without arguments that returns a matplotlib figure, always of
            the same size. The callback closes the figure.
        path: A file for the GIF, written at the end of the training: one frame per
            redraw, four per second. Its folder must exist. `None` writes none.
        every: The number of epochs between redraws. A redraw takes about 0.1 seconds.

    Example:
        >>> recorder = GateRecorder(every=1)
        >>> live = plots.LivePlot(lambda: plots.plot_gate_weights(recorder.history))
        >>> model = build_multitask_model(3, ["a", "b"], gate=DSelectKGate(2))
        >>> model.compile("adam")
        >>> x, y = np.ones((8, 3)), np.eye(8, 2)
        >>> log = model.fit(x, y, epochs=2, verbose=0, callbacks=[recorder, live])
    """

    def __init__(self, draw: Callable[[], Any], path: Any = None, every: int = 1):
        super().__init__()
        check_type("draw", draw, Callable, "a function that returns a figure")
        check_count("every", every)
        self.draw = draw
        self.path = path
        self.every = every
        self._shown = self._writer = None
        self._is_drawn = True

    def on_train_begin(self, logs: Any = None) -> None:
        style.import_pyplot()
        self._shown = self._writer = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._is_drawn = (epoch + 1) % self.every == 0
        if self._is_drawn:
            self._redraw()

    def on_train_end(self, logs: Any = None) -> None:
        if not self._is_drawn:
            self._redraw()
        if self._writer is not None:
            self._writer.finish()

    def _redraw(self):
        figure = self.draw()
        if self.path is not None:
            if self._writer is None:
                animation = optional_import(
                    "matplotlib.animation", extra="plots", purpose="Plotting"
                )
                self._writer = animation.PillowWriter(fps=4)
                self._writer.setup(figure, self.path)
            self._writer.fig = figure
            self._writer.grab_frame()
        # Who runs in a notebook has imported IPython.
        ipython = sys.modules.get("IPython")
        if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
            if self._shown is None:
                self._shown = ipython.display.display(figure, display_id=True)
            else:
                self._shown.update(figure)
        style.import_pyplot().close(figure)
