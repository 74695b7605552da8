"""How long `datacheck --help` takes: medians of whole processes, beside a bare interpreter as the limit."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 15
COMMANDS = {
    "python -c pass (the limit)": [sys.executable, "-c", "pass"],
    "python -c 'import click'": [sys.executable, "-c", "import click"],
    "datacheck --help": [str(Path(sys.executable).with_name("datacheck")), "--help"],
    "import datacheck": [sys.executable, "-c", "import datacheck"],
    "import datacheck.torch": [sys.executable, "-c", "import datacheck.torch"],
    "import torch": [sys.executable, "-c", "import torch"],
}


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation holds its modules compiled
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - start)
    print(f"{platform.machine()}, Python {platform.python_version()}, median of {ROUNDS} rounds")
    for name, values in seconds.items():
        print(
            f"{name:32} {statistics.median(values):6.3f} s   ({min(values):.3f} .. "
            f"{max(values):.3f})"
        )


if __name__ == "__main__":
    main()
