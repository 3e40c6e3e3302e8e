"""Imports of what not everyone has installed."""

import importlib


def import_extra(module, extra, purpose):
    """A module that an extra of the package brings, or an error that says which."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs {module}, which could not be imported. "
            f'Install it with: pip install "dselectk-keras[{extra}]"'
        ) from error
