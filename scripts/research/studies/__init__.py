"""Experiments of our own, whose results are blocks in the pages of docs/."""
