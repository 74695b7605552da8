"""Bytes to named arrays; a format knows no schema."""
