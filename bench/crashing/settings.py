"""What the program that is killed is told, by the one that kills it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from enum import Enum
from pathlib import Path

import msgspec

import aflow as af


class Mode(Enum):
    """How barriers travel; ``TIMEOUT`` is aligned ones that overtake when they have waited too long."""

    ALIGNED = "aligned"
    TIMEOUT = "timeout"
    UNALIGNED = "unaligned"

    @property
    def barriers(self) -> af.checkpoints.Aligned | af.checkpoints.Unaligned:
        """The setting of the job. The timeout is short enough that barriers overtake records now and then."""
        match self:
            case Mode.ALIGNED:
                return af.checkpoints.Aligned()
            case Mode.TIMEOUT:
                return af.checkpoints.Aligned(timeout=timedelta(milliseconds=10))
            case Mode.UNALIGNED:
                return af.checkpoints.Unaligned()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One start of the program. Folders as strings, since all of it travels as JSON."""

    inputs: str
    outputs: str
    storage: str | None
    """None: no checkpoints."""
    mode: Mode = Mode.ALIGNED
    parallelism: int = 1
    batch_records: int | None = None
    """None: the default of ``Options``."""
    orders: int
    """Records of each split of the generated source."""
    slow: bool = True
    """False: as fast as it goes, for runs that nobody kills."""
    write_us: int = 400
    """Microseconds that the slow sink takes for a record. The sources bring one every 500 or so."""
    every_ms: int = 60
    """From the begin of one checkpoint to that of the next."""
    endless: bool = False
    """True: the generated source keeps its last records back, so that the job cannot end before it is killed."""

    def as_json(self) -> str:
        """What ``of_json`` reads."""
        return msgspec.json.encode(asdict(self)).decode()

    @staticmethod
    def of_json(text: str) -> Settings:
        """Raises ``msgspec.ValidationError`` for anything else."""
        return msgspec.json.decode(text, type=Settings)

    def into(self, folder: Path, *, checkpoints: bool) -> Settings:
        """The same with outputs and checkpoints below ``folder``."""
        storage = str(folder / "checkpoints") if checkpoints else None
        return replace(self, outputs=str(folder / "out"), storage=storage)
