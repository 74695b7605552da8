"""A user's script in a process of its own: looked at as it is, or run again with one switch turned."""
