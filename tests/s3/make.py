"""Put caches into the bucket by obstore alone, and damage them there."""

from __future__ import annotations

import json
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np
import obstore
import xxhash
from obstore.store import from_url

from datacheck.model.sample import ArraySpec

SPECS = {
    "image": ArraySpec("uint8", (256, 300)),  # an inner chunk of its own
    "pose": ArraySpec("float32", (7,)),
    "points": ArraySpec("float32", (3,), "P"),
    "say": ArraySpec("uint8", (), "fields.say", "text"),
    "score": ArraySpec("float64", (), None, "array", True),
}


def samples(count: int = 13, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        sample = {
            "image": rng.integers(0, 255, (256, 300), dtype=np.uint8),
            "pose": rng.random(7, dtype=np.float32),
            "points": rng.random((int(rng.integers(0, 9000)), 3), dtype=np.float32),
            "say": f"sample {i}",
        }
        made.append(sample | ({"score": float(i)} if i % 3 else {}))
    return made


def opened(url: str):
    """The bucket of a URL for obstore, and the prefix in it."""
    place, _, prefix = url.removeprefix("s3://").partition("/")
    return _store(
        place, os.environ["AWS_ENDPOINT_URL"], os.environ["AWS_SECRET_ACCESS_KEY"]
    ), prefix


@lru_cache
def _store(place: str, *_: str):
    return from_url(
        f"s3://{place}", client_options={"allow_http": True}, retry_config={"max_retries": 3}
    )


def listed(url: str) -> dict[str, int]:
    store, prefix = opened(url)
    return {
        o["path"].removeprefix(f"{prefix}/"): o["size"]
        for page in obstore.list(store, prefix=prefix)
        for o in page
    }


def get(url: str) -> bytes:
    store, key = opened(url)
    return bytes(obstore.get(store, key).bytes())


def everything(url: str) -> dict[str, bytes]:
    """Every object below a URL."""
    names = sorted(listed(url))
    with ThreadPoolExecutor(8) as threads:
        return dict(zip(names, threads.map(lambda name: get(f"{url}/{name}"), names), strict=True))


def put(url: str, raw: bytes) -> None:
    store, key = opened(url)
    obstore.put(store, key, raw)


def delete(url: str) -> None:
    store, key = opened(url)
    obstore.delete(store, key)


def copied(folder: Path, url: str) -> str:
    """Copy a cache as it is."""
    store, prefix = opened(url)
    files = [path for path in folder.rglob("*") if path.is_file()]
    with ThreadPoolExecutor(8) as threads:
        list(
            threads.map(
                lambda p: obstore.put(store, f"{prefix}/{p.relative_to(folder).as_posix()}", p),
                files,
            )
        )
    return url


def committed(folder: Path, url: str, attempt: str | None = None) -> str:
    """Publish a cache as docs/object-stores.md says."""
    attempt = attempt or uuid.uuid4().hex
    copied(folder, f"{url}/{attempt}")
    digest = xxhash.xxh3_128_hexdigest((folder / "manifest.json").read_bytes())
    said = {"attempt": attempt, "format": 1, "manifest": digest}
    put(f"{url}/commit.json", json.dumps(said, sort_keys=True, separators=(",", ":")).encode())
    return url


def files_of(url: str) -> str:
    """The URL of the files of a committed cache."""
    return f"{url}/{json.loads(get(f'{url}/commit.json'))['attempt']}"


def flip(url: str, at: int, bit: int = 1) -> None:
    raw = bytearray(get(url))
    raw[at] ^= bit
    put(url, bytes(raw))
