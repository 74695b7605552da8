"""Images: the stored numbers, 16 bits included; size is known before anything is decoded."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from datacheck.errors import MissingDependencyError
from datacheck.formats import image
from datacheck.formats.base import open_container
from tests.formats.reading import CORPUS, read_all


@pytest.mark.parametrize(("shape", "dtype"), [((4, 3), "u1"), ((4, 3), "u2"), ((4, 3, 3), "u1"), ((4, 3, 4), "u1")])
def test_png_gives_what_was_stored(tmp_path, shape, dtype):
    data = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)
    Image.fromarray(data).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_all(tmp_path / "a.png")["image"], data)


def test_palette_images_give_indices_and_masks_booleans():
    assert read_all(CORPUS / "image/y_palette.png")["image"].tolist() == [[0, 3], [2, 1]]
    mask = read_all(CORPUS / "image/y_mask.png")["image"]
    assert mask.dtype == bool
    assert mask.tolist() == [[True, False]]


def test_header_alone_gives_the_shape(monkeypatch):
    with open_container(CORPUS / "image/y_color.png") as container:
        monkeypatch.setattr(image, "plain", None)  # decoding would need it
        assert container.peek("image") == ((6, 5, 3), "|u1")


def test_without_pillow_one_line_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'datacheck\[images\]'"):
        open_container(CORPUS / "image/y_color.png")
