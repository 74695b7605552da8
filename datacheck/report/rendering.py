"""Pages as one file each: a template with the page's data, scripts and styles in it.

User text enters a page as JSON only, and from there text nodes; it is never parsed as markup. Data
has to fit: `size_of`, `items_within` and `shortened` measure and cut values in bytes of the page.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from datacheck.rules.base import pluralize

_FOLDER = Path(__file__).with_name("page")
_SCRIPTS = ("dom.js", "charts.js")
_STYLES = ("page.css",)
_PICTURE_SCRIPTS = ("twgl.js", "scene.js", "space.js", "widgets.js", "pictures.js")
_PICTURE_STYLES = ("pictures.css",)


@dataclass(frozen=True)
class PageKind:
    """The properties that pages of one kind share besides the template.

    Args:
        command: the command that writes them; the title until the script sets one.
        top, contents, without: words in the template: the header's label, the target of the skip
            link, and the text for browsers without scripts.
        scripts: those of this kind, after the common ones.
    """

    command: str
    top: str
    contents: str
    without: str
    scripts: tuple[str, ...]


def render_page(kind: PageKind, data: Mapping[str, Any], *, pictured: bool) -> bytes:
    """Return a page: the template with data, scripts and styles; its policy forbids other scripts.

    Args:
        kind: of the page.
        data: JSON values; strings are untrusted.
        pictured: whether the page shows pictures of samples.
    """
    scripts = list(_SCRIPTS)
    styles = list(_STYLES)
    if pictured:
        scripts += _PICTURE_SCRIPTS
        styles += _PICTURE_STYLES
    script = _joined([*scripts, *kind.scripts])
    style = _joined(styles)
    parts = {
        "policy": _policy(script, style),
        "command": kind.command.encode(),
        "top": kind.top.encode(),
        "contents": kind.contents.encode(),
        "without": kind.without.encode(),
        "style": style,
        "script": script,
        "run": _json(data),
    }
    template = (_FOLDER / "page.html").read_bytes()
    return re.sub(rb"\{\{(\w+)\}\}", lambda match: parts[match[1].decode()], template)


def _joined(names: Sequence[str]) -> bytes:
    return b"\n".join((_FOLDER / name).read_bytes() for name in names)


def _policy(script: bytes, style: bytes) -> bytes:
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return policy.encode()


def _hash(text: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


# In UTF-8: U+0080 to U+009F, and noncharacters, which are parse errors in HTML even within a script,
# as U+007F is. "<" is common in hostile text, so a page escapes it without a call for each.
_NOT_HTML = re.compile(
    rb"\xc2[\x80-\x9f]|\xef(?:\xb7[\x90-\xaf]|\xbf[\xbe\xbf])|[\xf0-\xf4][\x8f\x9f\xaf\xbf]\xbf[\xbe\xbf]"
)


def _json(value: Any) -> bytes:
    """Return JSON without text that a browser would read as a tag, a comment or the script's end.

    Also escapes characters that HTML does not allow.
    """
    plain = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    plain = plain.replace(b"<", b"\\u003c").replace(b"\x7f", b"\\u007f")
    return _NOT_HTML.sub(_escaped, plain)


def _escaped(match: re.Match[bytes]) -> bytes:
    units = match[0].decode().encode("utf-16-be")
    return b"".join(
        b"\\u%02x%02x" % (high, low) for high, low in zip(units[::2], units[1::2], strict=True)
    )


# ------------------------------------------------------------------------------------------- limits


def size_of(value: Any) -> int:
    """Return the bytes that a value takes in the page."""
    return len(_json(value))


def items_within(items: Iterable[Any], room: int) -> list[Any]:
    """Return the first items that fit into `room` bytes of the page."""
    kept = []
    for item in items:
        room -= size_of(item) + 1
        if room < 0:
            break
        kept.append(item)
    return kept


def shortened(text: str, most: int) -> str:
    """Return the first `most` characters of a text, with an ellipsis if it had more.

    Characters that UTF-8 cannot hold are escaped.
    """
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 2]} …"


def pictures_within(previews: Mapping[str, Any], room: int) -> dict[str, Any]:
    """Return the first pictures and overlays of a run that fit into `room` bytes of its page.

    Args:
        previews: as `samples_within` takes them, and overlays of joints.
        room: bytes of the page.
    """
    overlays = []
    omitted = 0
    for overlay in previews.get("overlays", []):  # few, and small
        overlay_bytes = size_of(overlay) + 1
        if overlay_bytes > room // 4:
            omitted += 1
            continue
        room -= overlay_bytes
        overlays.append(overlay)
    kept = samples_within(previews, room)
    if omitted:
        kept["left_out"].append(
            f"joints of {pluralize(omitted, 'field')} not overlaid: the page has no more room"
        )
    return kept | {"overlays": overlays}


def samples_within(previews: Mapping[str, Any], room: int) -> dict[str, Any]:
    """Return the first pictures that fit into `room` bytes of a page, and notes on those left out.

    Args:
        previews: samples, the places among them for each row of pictures (finding), and notes on
            those already left out.
        room: bytes of the page.
    """
    every = previews["samples"]
    notes = list(previews["left_out"])
    # 200 bytes for the note below and the names of the parts.
    room -= size_of([previews["findings"], notes]) + 200
    kept = items_within(every, room)
    omitted = len(every) - len(kept)
    if omitted:
        notes.append(f"{pluralize(omitted, 'sample')} not drawn: the page has no more room")
    places = {
        name: [place for place in sample_places if place < len(kept)]
        for name, sample_places in previews["findings"].items()
    }
    return {"samples": kept, "findings": places, "left_out": notes}
