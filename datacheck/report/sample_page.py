"""Write the page of one sample, or its recording for Rerun."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import MissingDependencyError, UsageError
from datacheck.plugins import require
from datacheck.report.rendering import PageKind, render_page
from datacheck.runtime import fsops, outputs

Array = np.ndarray[Any, Any]

_SAMPLE_PAGE = PageKind(
    command="datacheck view", top="Sample", contents="pictures", without="", scripts=("view.js",)
)
_IS_VIEW = outputs.generated_by(_SAMPLE_PAGE.command)


def write_view(path: Path, said: Mapping[str, Any]) -> None:
    """Write the page of one sample.

    Args:
        path: of the page; an older page of a sample is replaced.
        said: the result of `preview.single.sample_of_run` or `sample_of_data`.

    Raises:
        UsageError: another file exists at `path`.
        StorageError: the page cannot be written.
    """
    outputs.check_output(path, _SAMPLE_PAGE.command, _IS_VIEW)
    fsops.make_directory(path.parent)
    page = render_page(_SAMPLE_PAGE, said, pictured=True)
    outputs.write_output(path, page, _SAMPLE_PAGE.command, _IS_VIEW)


# -------------------------------------------------------------------------------------------- Rerun


def log_to_rerun(said: Mapping[str, Any], out: Path | None) -> None:
    """Log the pictures of one sample to the Rerun viewer, or to a file.

    Args:
        said: the result of `preview.single.sample_of_run` or `sample_of_data`.
        out: an .rrd file; None starts the viewer.

    Raises:
        MissingDependencyError: rerun-sdk is not installed.
        UsageError: the file exists.
    """
    try:
        rr = require("rerun", "rerun")
    except MissingDependencyError:
        msg = (
            "--rerun needs the Rerun viewer: pip install 'rerun-sdk>=0.23'. Without --rerun a "
            "page is written."
        )
        raise MissingDependencyError(msg) from None
    if out is not None and (out.exists() or out.is_symlink()):
        msg = f"{out}: exists, and is not overwritten. Name another file: --out FILE.rrd"
        raise UsageError(msg)
    stream = rr.RecordingStream("datacheck")
    stream.save(str(out)) if out is not None else stream.spawn()
    pictures = said["sample"]["fields"]
    images = {image["field"]: image for image in pictures if image["kind"] == "image"}
    for picture in pictures:
        _log(rr, stream, {**picture, "under": images.get(picture.get("over"))})
    stream.flush()


def _log(rr: Any, stream: Any, picture: Mapping[str, Any]) -> None:
    logs = {
        "cloud": _log_cloud,
        "skeleton": _log_skeleton,
        "projection": _log_projection,
        "film": _log_film,
        "timeline": _log_timeline,
    }
    # pass the parts of the path, not a string: Rerun escapes each part
    name = picture["field"].split("/")
    kind = picture["kind"]
    if kind in logs:
        logs[kind](rr, stream, name, picture)
    elif kind == "image":
        stream.log(name, _image(rr, picture["url"]))
    else:
        segments = [f"[{part['is']}] {part['text']}" for part in picture.get("segments", [])]
        text = "\n".join(segments) or picture["about"]
        stream.log(name, rr.TextDocument(text))


def _log_cloud(rr: Any, stream: Any, name: list[str], picture: Mapping[str, Any]) -> None:
    stream.log(name, rr.Points3D(points_of(picture), colors=_colours(picture)))


def _log_skeleton(rr: Any, stream: Any, name: list[str], picture: Mapping[str, Any]) -> None:
    joints = picture["joints"]
    stream.log(name, rr.Points3D([joint for joint in joints if joint is not None]))
    bones = [[joints[j] for j in chain if joints[j] is not None] for _, chain in picture["chains"]]
    stream.log([*name, "bones"], rr.LineStrips3D([bone for bone in bones if len(bone) > 1]))


def _log_projection(rr: Any, stream: Any, name: list[str], picture: Mapping[str, Any]) -> None:
    under = picture["under"]
    scale = np.ones(2)
    name = [*name, "projected"]
    if under is not None:
        # the logged image is scaled down, so scale the pixels, too
        scale = np.array([under["width"], under["height"]]) / picture["size"]
        stream.log(name, _image(rr, under["url"]))
    projections = {"joints": picture["pixels"]}
    if picture["other"] is not None:
        projections[picture["other"]["name"]] = picture["other"]["pixels"]
    for point_name, pixels in projections.items():
        stream.log(
            [*name, point_name],
            rr.Points2D([(scale * pixel).tolist() for pixel in pixels if pixel is not None]),
        )


def _log_film(rr: Any, stream: Any, name: list[str], picture: Mapping[str, Any]) -> None:
    for frame in picture["frames"]:
        stream.set_time("step", sequence=frame["at"])
        stream.log(name, _image(rr, frame["url"]))


def _log_timeline(rr: Any, stream: Any, name: list[str], picture: Mapping[str, Any]) -> None:
    for dim in picture["dims"]:
        for step, value in zip(dim["at"], dim["values"], strict=True):
            if value is not None:
                stream.set_time("step", sequence=step)
                stream.log([*name, dim["name"]], rr.Scalars(value))


def points_of(picture: Mapping[str, Any]) -> Array:
    """Return the drawn points of a cloud: float64 (points, 3)."""
    low, high = (np.array(corner, np.float64) for corner in picture["box"])
    shares = np.frombuffer(base64.b64decode(picture["xyz"]), "<u2").reshape(-1, 3) / 65535
    points: Array = low * (1 - shares) + high * shares
    return points


def _colours(picture: Mapping[str, Any]) -> Array | None:
    colour = picture["colour"]
    if colour["by"] == "rgb":
        return np.frombuffer(base64.b64decode(colour["rgb"]), np.uint8).reshape(-1, 3)
    if colour["by"] == "label":
        labels = np.frombuffer(base64.b64decode(colour["label"]), np.uint8).astype(np.int64)
        return np.stack(
            [labels * 67 % 200 + 40, labels * 101 % 200 + 40, labels * 151 % 200 + 40], axis=1
        )
    return None


def _image(rr: Any, url: str) -> Any:
    head, _, data = url.partition(",")
    return rr.EncodedImage(
        contents=base64.b64decode(data), media_type=head.removeprefix("data:").partition(";")[0]
    )
