"""Ports of servers that tests start, and start again on the same port.

They are below the ports that the system gives to outgoing connections (from 32,768 on). One of those may be given to a
connection while the server does not listen, even to a client that tries to reach it: then the server cannot start.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from random import SystemRandom
from typing import Final

_FIRST: Final = 10_240
_OUTGOING: Final = 32_768


def free_port(*, below: int = _OUTGOING) -> int:
    """Return a port of loopback on which nothing listens, less than ``below``."""
    (port,) = free_ports(1, below=below)
    return port


def free_ports(count: int, *, below: int = _OUTGOING) -> list[int]:
    """Return different ports of loopback on which nothing listens, less than ``below``."""
    found: list[int] = []
    random = SystemRandom()  # the seed of a test is that of other processes, too
    with ExitStack() as probes:
        while len(found) < count:
            port = random.randrange(_FIRST, below)
            probe = probes.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return found
