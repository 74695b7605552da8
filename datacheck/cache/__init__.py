"""The cache on disk: layout, manifest, reading, verification. Imports no Zarr, pydantic or YAML."""

from datacheck.cache.find import open_cache
from datacheck.cache.reader import Cache
from datacheck.cache.windows import Windows

__all__ = ["Cache", "Windows", "open_cache"]
