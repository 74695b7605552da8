"""A real S3 server of our own (SeaweedFS), and a proxy before it that loses what it is told to lose."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.ports import free_port

BUCKET = "caches"
KEY, SECRET = "the-access-key", "the-secret-that-nobody-may-see"
WEED = Path(sys.executable).with_name("weed")
_PORTS = ("master", "volume", "filer", "s3")
_START_S = 800.0


class Server:
    """A server in a folder; started again it has what it had."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        identity = {
            "name": "t",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin"],
        }
        (folder / "data").mkdir(parents=True)
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self.ports: dict[str, int] = {}

    @property
    def port(self) -> int:
        return self.ports["s3"]

    def start(self) -> None:
        for _ in range(5):  # another process may have been given a port in the meantime
            self.ports = self.ports or _free_ports()
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    self._command(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    preexec_fn=_end_with_parent,
                )
            if self._answers():
                return
            self.stop()
            self.ports = {}
        raise RuntimeError((self.folder / "log").read_text(errors="replace")[-2000:])

    def _command(self) -> list[str]:
        ports = [
            f"-{name}.port{end}={self.ports[name + end]}"
            for name in _PORTS
            for end in ("", ".grpc")
        ]
        return [
            str(WEED),
            "server",
            f"-dir={self.folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-s3",
            *ports,
            f"-s3.config={self.folder / 's3.json'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.localSocket={self.folder / 's.sock'}",
            f"-filer.localSocket={self.folder / 'f.sock'}",
            "-s3.autoCreateBucket=false",
            "-master.telemetry=false",
            "-volume.max=20",
            "-master.volumeSizeLimitMB=64",
            "-volume.minFreeSpacePercent=0",
        ]

    def _answers(self) -> bool:
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(OSError):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{BUCKET}/", timeout=5)
                except urllib.error.HTTPError as error:
                    if error.code in {403, 404}:
                        return True
            time.sleep(0.1)
        return False

    def make_bucket(self, name: str) -> None:
        master = f"127.0.0.1:{self.ports['master']}.{self.ports['master.grpc']}"
        asked = f"s3.bucket.create -name {name}\n".encode()
        for _ in range(50):
            done = subprocess.run(
                [WEED, "shell", f"-master={master}"], input=asked, capture_output=True, timeout=800
            )
            if b"created bucket" in done.stdout + done.stderr:
                return
            time.sleep(0.2)
        raise RuntimeError(done.stdout + done.stderr)

    def stop(self) -> None:
        """As a power loss would."""
        self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.wait()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # its threads answer until they have stopped
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)


def _free_ports() -> dict[str, int]:
    names = [name + end for name in _PORTS for end in ("", ".grpc")]
    ports = set[int]()
    while len(ports) < len(names):
        ports.add(free_port())
    return dict(zip(names, ports, strict=True))


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


# --------------------------------------------------------------------------------- a bad connection

# The first bytes of a request: "", or "request", "answer" or an answer of the proxy's own
Lose = Callable[[bytes], str]


class Proxy:
    """Passes connections on; `lose` says of each request what becomes of it.

    Args:
        port: of the server.

    Attributes:
        lose: "request" closes the connection before the server has it all; "answer" lets the server
            do it and closes the connection then; a number ("503") is answered in the server's
            place.
        seen: the first line of every request.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self.lose: Lose = lambda _: ""
        self.seen: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:  # it is not there, now
                _close(client)
                continue
            self._open += [client, server]
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        drop = threading.Event()
        threading.Thread(target=self._answers, args=(server, client, drop), daemon=True).start()
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if data.split(b" ", 1)[0] in {b"GET", b"PUT", b"POST", b"HEAD", b"DELETE"}:
                    self.seen.append(data.split(b"\r\n", 1)[0].decode("latin1"))
                    what = self.lose(data)
                    if what == "request":
                        server.sendall(data[: len(data) // 2])
                        break
                    if what.isdigit():
                        client.sendall(
                            f"HTTP/1.1 {what} Slow Down\r\nContent-Length: 0\r\n\r\n".encode()
                        )
                        break
                    if what == "answer":
                        drop.set()
                server.sendall(data)
        if not drop.is_set():
            _close(server)
            _close(client)

    def _answers(self, server: socket.socket, client: socket.socket, drop: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if drop.is_set():
                    break
                client.sendall(data)
        _close(client)
        _close(server)

    def close(self) -> None:
        for one in (self._listening, *self._open):
            _close(one)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def environment(port: int) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }


def without_credentials() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
