"""The fixtures of the package's data sets, for those of the papers."""

from official_data import idx_dir, official

__all__ = ["idx_dir", "official"]
