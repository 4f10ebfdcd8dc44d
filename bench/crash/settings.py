"""Settings of the program that is killed, passed as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from enum import Enum
from pathlib import Path

import msgspec

import aflow as af


class Mode(Enum):
    """Mode of barriers; ``TIMEOUT`` is aligned barriers that overtake records after a timeout."""

    ALIGNED = "aligned"
    TIMEOUT = "timeout"
    UNALIGNED = "unaligned"

    @property
    def barriers(self) -> af.checkpoints.Aligned | af.checkpoints.Unaligned:
        """Setting of the job. The timeout is short, so barriers overtake records sometimes."""
        match self:
            case Mode.ALIGNED:
                return af.checkpoints.Aligned()
            case Mode.TIMEOUT:
                return af.checkpoints.Aligned(timeout=timedelta(milliseconds=10))
            case Mode.UNALIGNED:
                return af.checkpoints.Unaligned()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one start. Folders are strings, for JSON."""

    inputs: str
    outputs: str
    storage: str | None
    """Folder of checkpoints; None: no checkpoints."""
    mode: Mode = Mode.ALIGNED
    parallelism: int = 1
    batch_records: int | None = None
    """Size of batches; None: the default of ``Options``."""
    orders: int
    """Records of each split of the generated source."""
    slow: bool = True
    """False: without delays, for runs that are not killed."""
    write_us: int = 400
    """Microseconds per record of the slow sink. The sources emit a record about every 500 µs."""
    every_ms: int = 60
    """Interval of checkpoints."""
    resident: int | None = None
    """Keys of each step in memory, with the others in SQLite; None: all state is in memory."""
    endless: bool = False
    """True: the generated source withholds its last records, so the job cannot end before the kill."""

    def as_json(self) -> str:
        """Encode the settings for ``of_json``."""
        return msgspec.json.encode(asdict(self)).decode()

    @staticmethod
    def of_json(text: str) -> Settings:
        """Decode settings. Raises ``msgspec.ValidationError`` for invalid ones."""
        return msgspec.json.decode(text, type=Settings)

    @property
    def state(self) -> af.backends.InMemory | af.backends.OnDisk:
        """Return the backend. Its databases are below ``state``, beside the outputs."""
        if self.resident is None:
            return af.backends.InMemory()
        folder = Path(self.outputs).parent / "state"
        return af.backends.OnDisk(af.backends.DiskEngine.SQLITE, folder, self.resident)

    def into(self, folder: Path, *, checkpoints: bool) -> Settings:
        """Return the settings with outputs and checkpoints below ``folder``."""
        storage = str(folder / "checkpoints") if checkpoints else None
        return replace(self, outputs=str(folder / "out"), storage=storage)
