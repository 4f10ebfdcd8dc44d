"""The peers: their packages, how their programs are started, and what they cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A contender."""

    name: str
    module: str
    """Its program, in ``bench.peers.programs``."""
    packages: tuple[str, ...] = ()
    """Pinned packages of its own environment; none: it runs in the environment of aflow."""
    java: bool = False
    """True if it needs Java."""
    nats: bool = False
    """True if it needs a NATS server, whose address is in ``AFLOW_PEERS_NATS``."""
    share: float = 1.0
    """Share of the records of a job that it gets, where all of them would take minutes; figures are per second."""
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Reasons why it does not do a job, by job."""

    @property
    def short(self) -> str:
        """Return the name as an argument of the command line."""
        return self.name.lower().replace(" ", "-")


_NO_WINDOWS: Final = {
    "keyed_window": "no windows",
    "files": "no windows",
    "checkpoints": "no windows, no checkpoints",
}

PEERS: Final = (
    Peer(name="by hand", module="by_hand", lacks={"checkpoints": "no checkpoints"}),
    Peer(name="aflow", module="with_aflow"),
    Peer(name="bytewax", module="elsewhere.with_bytewax", packages=("bytewax==0.21.1",)),
    Peer(
        name="pathway",
        module="elsewhere.with_pathway",
        packages=("pathway==0.33.0",),
        lacks={"checkpoints": "not tried: its snapshots are for sources that it persists"},
    ),
    Peer(
        name="FastStream",
        module="elsewhere.with_faststream",
        packages=("faststream[nats]==0.7.8",),
        nats=True,
        share=0.2,
        lacks=_NO_WINDOWS,
    ),
    Peer(
        name="aiostream",
        module="elsewhere.with_aiostream",
        packages=("aiostream==0.8.1",),
        lacks=_NO_WINDOWS,
    ),
    Peer(
        name="reactivex",
        module="elsewhere.with_reactivex",
        packages=("reactivex==6.1.0",),
        lacks=_NO_WINDOWS,
    ),
    Peer(
        name="PyFlink",
        module="elsewhere.with_flink",
        packages=("apache-flink==2.3.0",),
        java=True,
        lacks={"latency": "no source that a Python program can feed"},
    ),
    Peer(
        name="Spark",
        module="with_spark",
        java=True,
        lacks={
            "keyed_window": "no rows of Python objects as input; see `files`",
            "checkpoints": "its micro-batches are not a job of one run",
            "latency": "micro-batches",
        },
    ),
)
