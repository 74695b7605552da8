"""A recorded training run: `record` writes it as it happens, `read` reads what lies there."""
