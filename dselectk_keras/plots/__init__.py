"""Pictures from plain arrays: expert weights, and curves."""

from dselectk_keras.plots.plot_curves import plot_curves
from dselectk_keras.plots.plot_expert_heatmap import plot_expert_heatmap
from dselectk_keras.plots.plot_gate_weights import plot_gate_weights

__all__ = [
    "plot_curves",
    "plot_expert_heatmap",
    "plot_gate_weights",
]
