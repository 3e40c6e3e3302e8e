"""Figures from plain arrays: expert weights, curves and runs."""

from dselectk_keras.plots.live_plot import LivePlot
from dselectk_keras.plots.plot_curves import plot_curves
from dselectk_keras.plots.plot_expert_heatmap import plot_expert_heatmap
from dselectk_keras.plots.plot_gate_weights import plot_gate_weights
from dselectk_keras.plots.plot_runs import plot_runs

__all__ = [
    "LivePlot",
    "plot_curves",
    "plot_expert_heatmap",
    "plot_gate_weights",
    "plot_runs",
]
