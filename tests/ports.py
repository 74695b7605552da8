"""Ports for servers of tests, which start them some seconds later."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

_LOWEST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")  # of outgoing connections


def free_port() -> int:
    """Return a free port that no outgoing connection is given until a server takes it.

    Any free port where outgoing connections may have all.
    """
    numbers = random.SystemRandom()  # pytest-xdist's workers must not draw the same
    with contextlib.suppress(OSError):
        above = int(_RANGE.read_text().split()[0])
        for port in numbers.choices(range(_LOWEST, above), k=100) if above > _LOWEST else ():
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
                return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
