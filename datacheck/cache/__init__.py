"""The cache on disk: names and numbers, manifest, reading, verification. Light: no Zarr, no pydantic, no YAML."""

from datacheck.cache.find import open_cache
from datacheck.cache.reader import Cache
from datacheck.cache.windows import Windows

__all__ = ["Cache", "Windows", "open_cache"]
