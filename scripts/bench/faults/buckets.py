"""Builds to an object store that end too early or meet: is anything partial ever committed, does the next go on?

    python scripts/bench/faults/buckets.py [--count 100] [--seed 0] [--folder DIR] [--python FILE]

The real command builds a small dataset to a real S3 server (SeaweedFS) through a proxy. Rows:

killed             SIGKILL of its process group, one to three times for each build: when one of its
requests arrives at
                   the store (what becomes of that one is random), or at a moment drawn over the
                   time that it takes
cut off            from a random PUT on no request arrives any more, or no answer, until the command
ends server killed      SIGKILL of the server at a random PUT; it is started again when the command
has ended lost responses     one of ten requests is lost on its way, or its answer is, or the answer
is 503 two at once        two commands of one key, with staging folders of their own or one; half of
them meet at the commit

After each the bucket must show nothing, or under a commit the golden cache byte for byte; a command
must have ended with 0 or 3, without a traceback. A plain run must then complete with the golden
bytes, and nothing may lie beside them, be it in the bucket or in a staging folder; only the empty
object by which a killed command tried whether it may write.

Two broken commands must be told: one that commits before it uploads, and one whose commit
overwrites another. Ends with 1 where anything was wrong, or a control was not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[3]))

from subject import MEMORY, Subject, build_json_left_out, command, machine, subject, write

from tests.s3.make import everything, listed
from tests.s3.server import BUCKET, Proxy, Server, environment

HASTY = (
    "from datacheck.cache import obstore_client\n"
    "obstore_client._RETRIES, obstore_client.RETRYING_S = 1, 2\n"
)
COMMITS_FIRST = """
from datacheck.build import upload as uploads
upload = uploads.BucketTarget._upload
def early(self, folder, manifest, prefix, sent, *, known):
    attempt = prefix.rpartition("/")[2]
    self._commit(attempt, uploads.commit_document(attempt, (folder / "manifest.json").read_bytes()))
    upload(self, folder, manifest, prefix, sent, known=known)
uploads.BucketTarget._upload = early
"""
OVERWRITES = """
from datacheck.cache.obstore_client import ObstoreClient
def create(self, key, data):
    self._obstore.put(self._store, key, bytes(data))
    return True
ObstoreClient.create = create
"""
PROBE = re.compile(r"\.[0-9a-f]{32}")
WAYS = ("request", "answer", "503")
TAKEN = "another builder took this build over"


@dataclass
class Tally:
    """What came of the trials of one kind; `late` ended before their fault."""

    trials: int = 0
    late: int = 0
    nothing: int = 0
    right: int = 0
    reruns: int = 0
    went_on: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class World:
    """A server, what is before it, and what is built.

    Args:
        server: the store.
        proxy: on the way to it.
        one: the build whose outcome is known.
        place: where its data are.
        rng: of everything random.
        python: runs the commands that are not killed.
    """

    server: Server
    proxy: Proxy
    one: Subject
    place: Path
    rng: random.Random
    python: str
    puts: int = 0  # requests of a whole build
    usual: float = 0.0  # seconds that it takes

    def fresh(self) -> str:
        """Return a place where nothing is."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex[:12]}"

    def start(self, url: str, staging: Path, more: str = "", python: str = "") -> Command:
        """Start the command."""
        return Command(self, url, staging, more, python or self.python)

    def shown(self, url: str) -> str:
        """Return what a place shows: "nothing", "right", or what is wrong with it."""
        base = f"{self.one.job.pipeline}/all/{self.one.key}"
        commits = [path for path in listed(url) if path.endswith("commit.json")]
        if not commits:
            return "nothing"
        if commits != [f"{base}/commit.json"]:
            return f"wrong: {commits}"
        found = everything(f"{url}/{base}")
        attempt = json.loads(found["commit.json"])["attempt"] + "/"
        files = {
            path.removeprefix(attempt): raw
            for path, raw in found.items()
            if path.startswith(attempt)
        }
        golden = {path: raw for path, raw in self.one.golden.items() if raw is not None}
        if build_json_left_out(dict(files)) == golden:
            return "right"
        return f"wrong: {[path for path in golden if path != 'build.json' and files.get(path) != golden[path]][:3]}"

    def beside(self, url: str, *stagings: Path) -> list[str]:
        """Return what lies beside the committed cache, there and in staging folders."""
        attempts = {
            "/".join(path.split("/")[:4]) for path in listed(url) if not PROBE.fullmatch(path)
        }
        files = [path.name for folder in stagings for path in folder.rglob("*") if path.is_file()]
        return ([f"{len(attempts) - 1} attempts"] if len(attempts) > 2 else []) + files

    def judge(self, url: str, tally: Tally, commands: list[Command]) -> None:
        """Look at what is left of commands, run one more plainly, look again."""
        self.proxy.lose = lambda _: ""
        tally.trials += 1
        shown = self.shown(url)
        tally.nothing += shown == "nothing"
        tally.right += shown == "right"
        codes = [one.code for one in commands]
        wrong = "" if shown in {"nothing", "right"} else f"shows {shown}"
        if not set(codes) <= {0, 3, -signal.SIGKILL} or any(
            "Traceback" in one.said for one in commands
        ):
            wrong = wrong or f"exit {codes}: {[one.said for one in commands]}"
        if 0 in codes and shown != "right":
            wrong = wrong or f"exit {codes}, and shows {shown}"
        tally.wrong += [f"trial {tally.trials}: {wrong}"] if wrong else []

    def rerun(self, url: str, tally: Tally, *stagings: Path) -> None:
        """Run the command plainly, once with each staging folder; look."""
        for staging in stagings:
            last = self.start(url, staging)
            last.end()
            tally.reruns += 1
            tally.went_on += "kept from an unfinished build" in last.said
            if last.code:
                tally.wrong.append(
                    f"trial {tally.trials}: the re-run ended with {last.code}: {last.said}"
                )
        shown, beside = self.shown(url), self.beside(url, *stagings)
        if shown != "right" or beside:
            tally.wrong.append(
                f"trial {tally.trials}: after the re-run it shows {shown}, beside it {beside}"
            )


class Command:
    """The real command, at work on a build to the bucket."""

    def __init__(self, world: World, url: str, staging: Path, more: str, python: str) -> None:
        call = command(
            world.place, Path(), "--out", url, "--staging", str(staging), "--workers", "1"
        )
        call[0], call[2] = python, more + call[2]
        staging.parent.mkdir(exist_ok=True)
        self._file = staging.with_name(f"said.{uuid.uuid4().hex}")
        with self._file.open("wb") as file:  # a pipe would be held open by who lives on
            self.process = subprocess.Popen(
                call,
                cwd=world.place,
                env=os.environ | environment(world.proxy.port),
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.began = time.monotonic()

    def end(self) -> None:
        """Wait for it."""
        self.process.wait(300)

    def kill(self) -> bool:
        """Kill its process group; return whether it came too late."""
        late = self.process.poll() is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return late

    @property
    def code(self) -> int:
        """Its exit code."""
        return int(self.process.returncode)

    @property
    def said(self) -> str:
        """What it wrote."""
        return self._file.read_text()


def at_put(number: int, then: Callable[[], str]) -> Callable[[bytes], str]:
    """Return a `Proxy.lose` that does something when the PUT of this number arrives, and passes all else on."""
    count, lock = [0], threading.Lock()

    def lose(data: bytes) -> str:
        if not data.startswith((b"PUT ", b"POST ")):
            return ""
        with lock:
            count[0] += 1
            mine = count[0] == number
        return then() if mine else ""

    return lose


# -------------------------------------------------------------------------------------------- kinds


def killed(world: World, place: Path, tally: Tally, more: str = "", number: int = 0) -> None:
    """Kill one build one to three times."""
    url, rng = world.fresh(), world.rng
    for _ in range(1 if more else rng.randint(1, 3)):
        reached, what = threading.Event(), rng.choice(("", *WAYS[:2]))

        def then(reached: threading.Event = reached, what: str = what) -> str:
            reached.set()
            time.sleep(0.02)
            return what

        at_request = number or rng.random() < 0.7
        world.proxy.lose = (
            at_put(number or rng.randint(1, world.puts), then) if at_request else lambda _: ""
        )
        one = world.start(url, place / "staging", more, sys.executable)
        until = time.monotonic() + rng.uniform(0.3, 1) * world.usual
        while one.process.poll() is None and not (
            reached.is_set() if at_request else time.monotonic() > until
        ):
            time.sleep(0.002)
        tally.late += one.kill()
        world.judge(url, tally, [one])
    if not more:
        world.rerun(url, tally, place / "staging")


def cut_off(world: World, place: Path, tally: Tally) -> None:
    """Lose everything from one PUT on."""
    url, how = world.fresh(), world.rng.choice(WAYS[:2])

    def then() -> str:
        world.proxy.lose = lambda _: how
        return how

    world.proxy.lose = at_put(world.rng.randint(1, world.puts), then)
    one = world.start(url, place / "staging", HASTY)
    one.end()
    tally.late += one.code == 0
    world.judge(url, tally, [one])
    world.rerun(url, tally, place / "staging")


def server_killed(world: World, place: Path, tally: Tally) -> None:
    """Kill the server."""
    url = world.fresh()

    def then() -> str:
        world.server.stop()
        return "request"

    world.proxy.lose = at_put(world.rng.randint(1, world.puts), then)
    one = world.start(url, place / "staging", HASTY)
    one.end()
    tally.late += one.code == 0
    world.server.start()
    world.judge(url, tally, [one])
    world.rerun(url, tally, place / "staging")


def lost(world: World, place: Path, tally: Tally) -> None:
    """Lose one of ten requests, or its answer."""
    url, rng = world.fresh(), random.Random(world.rng.random())
    world.proxy.lose = lambda _: rng.choice(WAYS) if rng.random() < 0.1 else ""
    one = world.start(url, place / "staging")
    one.end()
    world.judge(url, tally, [one])
    world.rerun(url, tally, place / "staging")


def two(world: World, place: Path, tally: Tally, more: str = "") -> None:
    """Start two commands of one key."""
    url, rng = world.fresh(), world.rng
    stagings = (
        [place / "staging", place / "staging"]
        if rng.random() < 0.3 and not more
        else [place / "a", place / "b"]
    )
    meeting, meet = threading.Barrier(2), bool(more) or rng.random() < 0.5

    def lose(data: bytes) -> str:
        if meet and data.startswith(b"PUT ") and b"commit.json" in data[:300]:
            with contextlib.suppress(threading.BrokenBarrierError):
                meeting.wait(4)
        return ""

    world.proxy.lose = lose
    running = []
    for staging in stagings:
        running.append(world.start(url, staging, more))
        time.sleep(0 if meet else rng.choice((0, 0.05, 0.3)))
    for one in running:
        one.end()
    world.judge(url, tally, running)
    refused = [
        one.said for one in running if one.code and not (one.code == 3 and TAKEN in one.said)
    ]
    tally.wrong += [f"trial {tally.trials}: {said}" for said in refused]
    world.rerun(url, tally, *([] if more else dict.fromkeys(stagings)))


# ---------------------------------------------------------------------------------------- the table


HEAD = ("trials", "late", "nothing", "right", "reruns", "went_on", "wrong")


def line(name: str, tally: Tally) -> None:
    """Print what came of one kind."""
    cells = [len(tally.wrong) if what == "wrong" else getattr(tally, what) for what in HEAD]
    print(f"{name:36}" + "".join(f"{cell:>10,}" for cell in cells), flush=True)


KINDS: dict[
    str, tuple[Callable[[World, Path, Tally], None], int]
] = {  # and of how many trials each is one
    "killed": (killed, 1),
    "cut off": (cut_off, 2),
    "server killed": (server_killed, 10),
    "lost responses": (lost, 4),
    "two at once": (two, 2),
}


@contextlib.contextmanager
def world_at(place: Path, rng: random.Random, python: str) -> Iterator[World]:
    """Start the server, write the data, build once to know what a whole build is."""
    write(place)
    server = Server(place / "server")
    server.start()
    os.environ.update(environment(server.port))
    server.make_bucket(BUCKET)
    proxy = Proxy(server.port)
    try:
        world = World(server, proxy, subject(place), place, rng, python)
        first = world.start(world.fresh(), place / "staging")
        first.end()
        world.usual = time.monotonic() - first.began
        world.puts = sum(one.startswith(("PUT", "POST")) for one in proxy.seen)
        if first.code:
            raise SystemExit(first.said)
        yield world
    finally:
        proxy.close()
        server.remove()


def controls(world: World) -> dict[str, Tally]:
    """Try two broken commands when it must show."""
    early, over = Tally(), Tally()
    with tempfile.TemporaryDirectory(dir=world.place) as name:
        killed(world, Path(name), early, COMMITS_FIRST, world.puts // 2)
        two(world, Path(name, "two"), over, OVERWRITES)
    return {"commits before it uploads": early, "overwrites a commit": over}


def main(arguments: list[str] | None = None) -> int:
    """Run all trials; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count", type=int, default=100, help="of kills; of the others a part of it"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default=MEMORY, help="where to write; removed afterwards")
    parser.add_argument(
        "--python", default=sys.executable, help="runs the commands that are not killed"
    )
    asked = parser.parse_args(arguments)
    start, bad, believed = time.perf_counter(), 0, []
    with (
        tempfile.TemporaryDirectory(dir=asked.folder) as name,
        world_at(Path(name), random.Random(asked.seed), asked.python) as world,
    ):
        print(f"{'':36}" + "".join(f"{what.replace('_', ' '):>10}" for what in HEAD))
        for what, (kind, part) in KINDS.items():
            tally = Tally()
            while tally.trials < max(1, asked.count // part):
                with tempfile.TemporaryDirectory(dir=name) as folder:
                    kind(world, Path(folder), tally)
            line(what, tally)
            print(*(f"    {wrong}\n" for wrong in tally.wrong[:8]), sep="", end="")
            bad += len(tally.wrong)
        for what, tally in controls(world).items():
            line(f"control: {what}", tally)
            believed += [] if tally.wrong else [what]
    print(*(f"a command that {one} was believed\n" for one in believed), sep="", end="")
    print(machine(time.perf_counter() - start))
    return int(bool(bad or believed))


if __name__ == "__main__":
    sys.exit(main())
