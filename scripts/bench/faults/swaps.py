"""Files that become links while they are read: is a file outside of the data ever opened, or shown?

    python scripts/bench/faults/swaps.py [--swaps 20000] [--runs 40] [--seed 0] [--folder DIR]

Scans, manifests and builds run in turns while another process exchanges files, folders and parts of
a Zarr store for links to files outside (RENAME_EXCHANGE), until there were so many swaps and so
many commands. The files outside hold a random token, which may stand in nothing that was printed or
written, and inotify sees every open of them.

Control: the same names, read plainly during as many swaps, must lead outside. Ends with 1 where
anything was wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.hostile.ground import Ground
from tests.hostile.swapping import control, race


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--swaps", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        found = race(
            Ground(Path(folder, "race")), swaps=asked.swaps, runs=asked.runs, seed=asked.seed
        )
        plain = control(Ground(Path(folder, "control")), swaps=asked.swaps, seed=asked.seed)
    print(f"{found.swaps:,} swaps during {found.runs} commands in {time.monotonic() - began:.0f} s")
    print(
        f"files outside that were opened: {len(found.opened)}; outputs with the token: "
        f"{len(found.shown)}"
    )
    print(f"control, {plain.swaps:,} swaps: {len(plain.opened)} files outside were opened")
    for name in sorted(found.opened | found.shown):
        print(f"WRONG {name}")
    for ended in found.odd:
        print(f"WRONG ended with {ended.code}: {ended.text[-400:]}")
    return int(bool(found.opened or found.shown or found.odd or not plain.opened))


if __name__ == "__main__":
    sys.exit(main())
