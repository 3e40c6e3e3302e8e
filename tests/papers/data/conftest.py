"""Official files, and the modules of the data sets."""

import importlib

import pytest
from official_data import idx_dir, official

__all__ = ["idx_dir", "module", "official"]


@pytest.fixture
def module():
    """A data set's module, whose name in the package is that of its function."""
    return lambda name: importlib.import_module(f"papers.data.{name}")
