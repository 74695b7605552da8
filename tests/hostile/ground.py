"""The ground of an attack: a hostile folder, what lies outside of it, and what says which of it an attack reached.

place      the hostile folder, the working folder of every command
outside    what no command may open or change; its files hold a random token
fired      where code that was run leaves a file
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shlex
import struct
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr

SCRIPT = Path(sysconfig.get_path("scripts")) / "datacheck"
MODULE = (sys.executable, "-m", "datacheck")
REPOSITORY = Path(__file__).resolve().parents[2]
ENDS = frozenset({0, 1, 2, 3, 7})
FIRED = "canary fired: "
_IN_ACCESS, _IN_OPEN, _IN_OVERFLOW = 0x1, 0x20, 0x4000
_EVENT = struct.Struct("iIII")


@dataclass
class Ground:
    """The folders of one attack."""

    base: Path
    token: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        for name in ("place", "outside", "fired", "home", "scratch", "bin"):
            (self.base / name).mkdir(parents=True, exist_ok=True)

    @property
    def place(self) -> Path:
        return self.base / "place"

    @property
    def outside(self) -> Path:
        return self.base / "outside"

    @property
    def fired(self) -> Path:
        return self.base / "fired"

    def python(self, name: str) -> str:
        """Return Python code that leaves a file, says so and ends its process.

        Notes:
            A sandbox keeps the file from being written and the message from being seen. The end of
            the process by SIGUSR2 is seen in any case.
        """
        return (
            "import os\n"
            f"try:\n    open({str(self.fired / name)!r}, 'w').close()\nexcept OSError:\n    pass\n"
            f"os.write(2, b'canary ' + b'fired: {name}\\n')\n"
            "os.kill(os.getpid(), 12)\n"
        )

    def shell(self, name: str) -> str:
        """Return a command of the shell that leaves a file and says so."""
        return f"touch {shlex.quote(str(self.fired / name))}; echo canary' 'fired: {name} >&2"

    def environment(self) -> dict[str, str]:
        """Return the environment of every command: nothing in it leads into the hostile folder."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in {"PATH", "LANG", "LD_LIBRARY_PATH"}
        }
        kept["PATH"] = f"{self.base / 'bin'}:{kept['PATH']}"
        said = {
            "HOME": self.base / "home",
            "TMPDIR": self.base / "scratch",
            "PYTHONPATH": REPOSITORY,
        }
        return (
            kept
            | {name: str(value) for name, value in said.items()}
            | {"PYTHONWARNINGS": "default"}
        )

    def run(self, *command: str | Path, seconds: float = 200) -> Ended:
        """Run a command in the hostile folder to its end."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.place,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=seconds,
        )
        return Ended(done.returncode, done.stdout + done.stderr)

    def ran(self, ended: Ended) -> list[str]:
        """Return the canaries that ran since the last call."""
        said = {line.partition(FIRED)[2][:40] for line in ended.text.splitlines() if FIRED in line}
        killed = {"something (SIGUSR2)"} if "SIGUSR2" in ended.text or ended.code == -12 else set()
        files = list(self.fired.iterdir())
        for path in files:
            path.unlink()
        return sorted({path.name for path in files} | said | killed)

    def leaks(self, ended: Ended) -> list[str]:
        """Return where the token stands: in what was printed, or in a file that was written."""
        token = self.token.encode()
        found = ["what was printed"] if token in ended.output else []
        for top in ("place", "home", "scratch"):
            for folder, _, names in os.walk(self.base / top):
                for path in (Path(folder, name) for name in names):
                    if token.decode() in path.name:
                        found.append(f"the name {path}")
                    if path.is_file() and not path.is_symlink() and token in path.read_bytes():
                        found.append(str(path))
        return found


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    output: bytes

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace")

    @property
    def sound(self) -> bool:
        """Whether it ended as any command may end on bad input."""
        return (
            self.code in ENDS
            and b"Traceback" not in self.output
            and b"internal error" not in self.output
        )


# ---------------------------------------------------------------------------------------- detectors


class Watch:
    """Sees every open and read of files and folders below a folder, by inotify, whoever does it and by what name."""

    def __init__(self, folder: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._events = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._events < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._folders: dict[int, Path] = {}
        for here, _, _ in os.walk(folder):
            number = self._libc.inotify_add_watch(
                self._events, os.fsencode(here), _IN_OPEN | _IN_ACCESS
            )
            if number < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", here)
            self._folders[number] = Path(here)
        self.seen()  # opening the folders for this very walk

    def seen(self) -> list[str]:
        """Return what was opened or read since the last call."""
        found = set()
        while True:
            try:
                data = os.read(self._events, 1 << 16)
            except BlockingIOError:
                return sorted(found)
            while data:
                number, mask, _, length = _EVENT.unpack_from(data)
                name = (
                    data[_EVENT.size : _EVENT.size + length].rstrip(b"\0").decode(errors="replace")
                )
                found.add(
                    "more than inotify keeps"
                    if mask & _IN_OVERFLOW
                    else str(self._folders[number] / name)
                )
                data = data[_EVENT.size + length :]

    def close(self) -> None:
        os.close(self._events)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return mode, time of change and bytes of all that lies below a folder, to compare."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        known = path.lstat()
        data = (
            os.fsencode(path.readlink())
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else b""
        )
        found[path.relative_to(folder).as_posix()] = (known.st_mode, known.st_mtime_ns, data)
    return found


# ------------------------------------------------------------------------------------------ secrets


def secret_files(folder: Path, token: str) -> None:
    """Write files of every kind that hold the token where their format shows it: in values and in names."""
    folder.mkdir(parents=True, exist_ok=True)
    word = np.frombuffer(token.encode(), "u1")
    (folder / "secret.txt").write_text(f"{token}\n{token}/0001\n")
    (folder / "secret.csv").write_text(f"{token},x\n1,2\n")
    (folder / "secret.yaml").write_text(f"{token}: {token}\nfilepath: {token}\n")
    said = {
        token: token,
        "text": token,
        "mean": [1.0],
        "fps": token,
        "features": {token: token},
        "shards": [token],
    }
    (folder / "secret.json").write_text(json.dumps(said))
    rows = [
        {"task": token, "task_index": 0, "episode_index": 0, "length": 3, "text": token, token: 1}
    ]
    (folder / "secret.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    np.save(folder / "secret.npy", word)
    np.savez(folder / "secret.npz", **{token: word})
    (folder / "secret.bin").write_bytes(word.tobytes())
    with h5py.File(folder / "secret.h5", "w") as file:
        file["data/demo_0/actions"] = np.resize(word, (8, 7)).astype("f4")
        file["data/demo_0"].attrs["text"] = token
        file[token], file["x"] = token, word
    pq.write_table(
        pa.table({token: [token], "task": [token], "task_index": [0]}), folder / "secret.parquet"
    )
    group = zarr.open_group(folder / "secret.zarr", mode="w")
    group.attrs["text"] = token
    group.create_array("x", data=word, chunks=(8,))
    group.create_array(token, data=word, chunks=(32,))
    with tarfile.open(folder / "secret.tar", "w") as file:
        file.add(folder / "secret.txt", arcname=f"{token}.txt")
    text = token.encode()
    head = (
        b'{"version": 2, "format": "mds", "column_names": ["%b"], "column_encodings": ["str"], '
        b'"column_sizes": [null]}'
    )
    head %= text
    stops = [8 + 4 + len(head), 8 + 4 + len(head) + 4 + len(text)]
    body = struct.pack("<I", len(text)) + text
    (folder / "secret.mds").write_bytes(struct.pack("<III", 1, *stops) + head + body)


def plain_samples(folder: Path, count: int = 4) -> None:
    """Write good samples."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        values = np.random.default_rng(number).normal(size=(4, 3)).astype("f4")
        np.save(folder / f"s{number}.npy", values)


PLAIN = (
    'datacheck: 1\nname: plain\nsamples: {files: "s*.npy"}\nfields: {x: {role: value, shape: '
    "[4, 3]}}\n"
)
ALL = 'datacheck: 1\nname: all\nsamples: {files: "**/*"}\nfields: {"*": {}}\n'
