"""Which fields are pixels: what a scan reads at its deepest level only."""

from __future__ import annotations

from datacheck.schema.model import Schema

_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


def pixels(schema: Schema) -> frozenset[str]:
    """Return the fields of role image or video, and the depth maps that are stored as image files."""
    found = set()
    for name, spec in schema.stored.items():
        files = (spec.file,) if spec.file is not None else schema.samples.files
        stored_so = spec.role == "depth" and all(file.lower().endswith(_IMAGES) for file in files)
        if spec.role in {"image", "video"} or stored_so:
            found.add(name)
    return frozenset(found)
