"""The environments of the peers, made on demand in ``build/peers/``, and the server that some of them need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.peers.contenders import Peer
from tests.connectors.nats.server import nats_program, running_nats

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "peers"

#: File in an environment with the packages that were installed.
_STAMP: Final = "packages.txt"


class Unavailable(Exception):
    """A peer that cannot run on this machine, with the reason."""


def python_of(peer: Peer) -> Path:
    """Return the Python of the peer; make its environment if it is not there. Raises ``Unavailable``."""
    if peer.java and shutil.which("java") is None:
        raise Unavailable("it needs Java")
    if not peer.packages:
        return Path(sys.executable)
    folder = FOLDER / peer.short
    python, stamp = folder / "bin" / "python", folder / _STAMP
    wanted = "\n".join(peer.packages)
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", *peer.packages],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise Unavailable(f"{' '.join(peer.packages)} cannot be installed: {' '.join(last)}")
    stamp.write_text(wanted)
    return python


@contextmanager
def servers(peers: Iterable[Peer]) -> Generator[dict[str, str]]:
    """Yield the variables that the programs need, with the address of a NATS server if one of ``peers`` needs it."""
    paths = [str(ROOT), str(ROOT / "connectors"), os.environ.get("PYTHONPATH", "")]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    program = nats_program() if any(peer.nats for peer in peers) else None
    if program is None:
        yield variables
        return
    with running_nats(program) as server:
        yield {**variables, "AFLOW_PEERS_NATS": server.url}
