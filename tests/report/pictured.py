"""A made run with one sample of every kind of picture."""

import numpy as np
import orjson

from datacheck.preview.drawings import Colour, cloud, film, image, timeline
from datacheck.preview.overlays import FailingPose, overlay, projection, skeleton
from datacheck.preview.texts import chat, tokens
from datacheck.scan.run_documents import PREVIEWS, PREVIEWS_FORMAT
from datacheck.schema.model import FieldSpec
from tests.preview.hands import hand

CAMERA = FieldSpec(
    role="joints",
    skeleton="mano21",
    frame="camera_opengl",
    intrinsics="k",
    image_size=(640, 480),
    shape=[21, 3],
)
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e"


def pictures():
    rng = np.random.default_rng(0)
    points, frames = rng.uniform(-1, 1, (500, 3)), rng.integers(0, 256, (20, 9, 9, 3), np.uint8)
    talk = [{"role": "user", "content": HOSTILE}, {"role": "assistant", "content": "A hill."}]
    ids = np.arange(9)
    return {
        "cloud": cloud(points, "m", None, Colour(HOSTILE, np.arange(500) % 3)),
        "rgb": cloud(points, "m", "y", Colour("rgb", rng.integers(0, 256, (500, 3)))),
        "one place": cloud(np.zeros((4, 3)), "m"),
        "skeleton": skeleton(rng.normal(size=(21, 3)), "mano21", "m"),
        "projection": projection(
            rng.uniform([-1, -1, 3], [1, 1, 5], (21, 3)), np.array([300.0, 300, 320, 240]), CAMERA
        )
        | {"over": "image"},
        "image": image(frames[0]),
        "film": film(frames, fps=20),
        "timeline": timeline(
            np.where(rng.uniform(size=(300, 3)) < 0.01, np.nan, 1.0), [HOSTILE, "grip"], "rad", 20
        ),
        "text": chat(talk, FieldSpec(role="chat", train_on="assistant"), None, None),
        "tokens": tokens(ids, np.where((ids > 4) & (ids < 8), ids, -100), pad=8),
        "note": {"kind": "note", "about": f"float64 [7]: {HOSTILE}"},
    }


def put(folder, finding="DC201:xyz"):
    """Write the previews of a run; a sample of each kind, and one with all of them."""
    made = [{"field": name, **one} for name, one in pictures().items()]
    samples = [
        {"key": one["field"], "split": "", "fields": [one], "left_out": [], "why": ""}
        for one in made
    ] + [
        {"key": HOSTILE, "split": HOSTILE, "fields": made, "left_out": [HOSTILE], "why": ""},
        {"key": "torn", "split": "", "fields": [], "left_out": [], "why": HOSTILE},
    ]
    said = {
        "format": PREVIEWS_FORMAT,
        "samples": samples,
        "left_out": ["2 samples not drawn: no time"],
    }
    laid = overlay(
        [hand()] * 5, [FailingPose(HOSTILE, HOSTILE, hand() * 2, 0, HOSTILE)], "mano21", "m"
    )
    overlays = [
        {"field": "xyz"} | laid | {"left_out": [HOSTILE]},
        {"field": HOSTILE, "why": HOSTILE},
    ]
    said |= {"findings": {finding: list(range(len(samples)))}, "overlays": overlays}
    (folder / PREVIEWS).write_bytes(orjson.dumps(said))
    return folder
