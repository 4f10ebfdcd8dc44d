"""``python -m fastapi_fraud --port 8000``; the settings are variables of the environment, see ``settings.py``.

``python -m fastapi_fraud risk --port 8090`` serves the simulated risk service alone.
"""

from __future__ import annotations

import argparse
import socket

import uvicorn

from fastapi_fraud.fake_risk import fake_risk
from fastapi_fraud.service import create_app


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Print the address once requests are accepted: port 0 is a free one."""
        await super().startup(sockets=sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()
            print(f"listening on http://{host}:{port}", flush=True)


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["payments", "risk"], default="payments")
    parser.add_argument("--port", type=int, default=8000, help="0 chooses a free one")
    arguments = parser.parse_args()
    config = uvicorn.Config(
        fake_risk() if arguments.what == "risk" else create_app(),
        host="127.0.0.1",
        port=arguments.port,
        log_level="warning",
        timeout_graceful_shutdown=10,  # for requests that wait for a decision
    )
    _Server(config).run()


main()
