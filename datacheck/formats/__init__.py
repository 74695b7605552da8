"""File formats: turn bytes into named arrays, without a schema."""
