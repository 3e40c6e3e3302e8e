"""The fixtures of the data sets' tests."""

from official_data import idx_dir, official

__all__ = ["idx_dir", "official"]
