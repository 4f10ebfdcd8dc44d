"""A server of the S3 protocol for tests: moto, in a process of its own, on a free port of loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from urllib.request import Request, urlopen

#: Environment variable with the URL of a running server to test with, whose keys are those below.
ADDRESS: Final = "AFLOW_TEST_S3"
_BUCKET: Final = "aflow-tests"
_NUMBERS: Final = count()

#: Ends with its standard input, that is with the test process, also if that is killed.
_PROGRAM: Final = """
import logging, sys, threading, os
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
server.serve_forever()
"""


@dataclass(frozen=True)
class S3Server:
    """A running server with a bucket."""

    endpoint: str
    secret: str = "open-sesame-secret"
    bucket: str = _BUCKET
    _run: str = field(default_factory=lambda: f"{os.getpid()}-{next(_NUMBERS)}")

    @property
    def client(self) -> Mapping[str, object]:
        """Settings of obstore."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "AKIAEXAMPLE",
            "secret_access_key": self.secret,
        }

    def url(self, prefix: str) -> str:
        """Return a URL in the bucket that no other test uses."""
        return f"s3://{self.bucket}/{self._run}/{prefix}"


@contextmanager
def running() -> Generator[str]:
    """Run a server, and yield its endpoint."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        port = process.stdout.readline().decode().strip()
        endpoint = f"http://127.0.0.1:{port}"
        urlopen(Request(f"{endpoint}/{_BUCKET}", method="PUT"), timeout=60).close()
        yield endpoint
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()
