"""Which fields are pixels: what a scan reads at its deepest level only."""

from __future__ import annotations

from datacheck.schema.model import Schema

_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_VIDEOS = (".mp4", ".m4v", ".mov")  # of which only the header is read


def pixels(schema: Schema) -> frozenset[str]:
    """Return the fields of role image, videos stored as arrays, and depth maps that are stored as image files."""
    found = set()
    for name, spec in schema.stored.items():
        files = (spec.file,) if spec.file is not None else schema.samples.files
        as_images = spec.role == "depth" and all(file.lower().endswith(_IMAGES) for file in files)
        as_array = spec.role == "video" and not all(file.lower().endswith(_VIDEOS) for file in files)
        if spec.role == "image" or as_images or as_array:
            found.add(name)
    return frozenset(found)
