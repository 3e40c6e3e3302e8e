"""A comparison of gates on many problems."""
