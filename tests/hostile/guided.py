"""Lets Atheris choose the mutants of a format, by the branches of its reader that they reach.

    python -m tests.hostile.guided FORMAT SEED SECONDS FOLDER

FOLDER/failed holds what failed. Atheris must see the readers before anything else imports them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["datacheck.formats"]):
    from datacheck.formats.base import formats

    formats()
    from tests.hostile.mutating import corpus, read_or_refused


def main() -> None:
    name, seed, seconds, folder = (
        sys.argv[1],
        int(sys.argv[2]),
        float(sys.argv[3]),
        Path(sys.argv[4]),
    )
    for inner in ("current", "failed", "known"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    for path in corpus(name):
        if path.is_file():
            shutil.copyfile(path, folder / "known" / path.name)
    place = folder / "current" / f"x{formats()[name].suffixes[0]}"

    def read(data: bytes) -> None:
        place.write_bytes(data)
        read_or_refused(place)

    limits = (
        "-timeout=20",
        "-rss_limit_mb=3000",
        "-max_len=100000",
        "-verbosity=0",
        "-print_final_stats=1",
    )
    options = (
        f"-max_total_time={int(seconds)}",
        f"-seed={seed + 1}",
        f"-artifact_prefix={folder}/failed/",
    )
    atheris.Setup([sys.argv[0], *limits, *options, str(folder / "known")], read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
