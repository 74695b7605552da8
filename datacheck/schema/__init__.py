"""What a dataset promises."""

from datacheck.schema.model import FieldSpec, Schema

__all__ = ["FieldSpec", "Schema"]
