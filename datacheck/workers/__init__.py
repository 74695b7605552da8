"""Expendable child processes that parse data, their budgets, and the Dask backend."""
