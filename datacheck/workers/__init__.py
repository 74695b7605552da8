"""Processes that may die, and what they may use: children that parse data, and Dask."""
