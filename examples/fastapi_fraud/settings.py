"""The settings of one process, from its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

_PREFIX: Final = "FRAUD_"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each field is the variable of the environment with its name: ``FRAUD_FOLDER``, and so on."""

    folder: str = "data"
    """Log, checkpoints and results, of this process only."""
    shard: int = 0
    """The number of this process, from 0."""
    shards: int = 1
    """The number of processes among which cards are divided."""
    risk_url: str = ""
    """Address of the risk service; empty: a simulated one in this process."""
    token: str = ""
    """Token for writes below ``/aflow``; empty: they are refused."""
    read_token: str = ""
    """Token for reads below ``/aflow``; empty: none is needed."""
    ask_seconds: float = 2.0
    """The longest wait for a decision."""
    max_bytes: int = 1 << 30
    """The size of the log at which payments are refused."""
    full_seconds: float = 1.0
    """The longest wait of a payment for room in the log."""
    id_seconds: float = 600.0
    """The time in which a repeated payment is recognized."""
    window_seconds: float = 60.0
    """The length of a row of the table ``minutes``."""
    delay_seconds: float = 10.0
    """The longest delay of a payment that is counted in its minute."""
    checkpoint_seconds: float = 1.0
    """The time between two checkpoints: results are visible after one."""
    stop_seconds: float = 20.0
    """The time that SIGTERM leaves to what is in flight."""

    def __post_init__(self) -> None:
        if not 0 <= self.shard < self.shards:
            raise ValueError(
                f"shard {self.shard} of {self.shards}: shards are numbered from 0 to {self.shards - 1}"
            )

    @property
    def place(self) -> Path:
        """The folder of this shard."""
        return Path(self.folder) / f"shard-{self.shard}-of-{self.shards}"


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read settings. Raises ``msgspec.ValidationError`` for a variable ``FRAUD_…`` that is unknown or invalid."""
    found = {
        name.removeprefix(_PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(_PREFIX)
    }
    return msgspec.convert(found, Settings, strict=False)
