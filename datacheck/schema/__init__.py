"""The schema: what a dataset declares about its files and fields."""

from datacheck.schema.model import FieldSpec, Schema

__all__ = ["FieldSpec", "Schema"]
