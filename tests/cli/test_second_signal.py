"""A second Ctrl-C arrives while the first one is handled: both count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture.rooms import PROJECT
from tests.cli.conftest import Write

#: A sink that never returns and sends Ctrl-C to its process. A second one follows when the handler of the first calls
#: the loop, before the loop has the callback of the first.
TWICE = """
    import asyncio
    import os
    import signal
    import aflow as af

    def endless(number):
        loop = asyncio.get_running_loop()
        call_soon = loop.call_soon_threadsafe

        def interrupted(*arguments):
            loop.call_soon_threadsafe = call_soon
            os.kill(os.getpid(), signal.SIGINT)
            return call_soon(*arguments)

        loop.call_soon_threadsafe = interrupted
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass

    flow = af.Flow("twice")
    flow.source([1]).to(af.CallbackSink(endless))
"""


def test_ctrl_c_in_the_handler_of_ctrl_c_stops_at_once(write: Write, tmp_path: Path) -> None:
    write("twice", TWICE)

    ended = subprocess.run(
        [sys.executable, "-m", "aflow", "run", "--no-uvloop", "twice:flow"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(PROJECT), "PATH": ""},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=300,
    )

    said = [line.partition(":")[0] for line in ended.stderr.splitlines()]
    assert said == ["draining", "stopping at once"]
    assert ended.returncode == 130
