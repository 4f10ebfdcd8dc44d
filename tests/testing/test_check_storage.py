"""``check_storage`` accepts the storage of aflow, and names each breach of the contract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aflow.checkpoints import DirectoryStorage, FileRef, Link, Manifest, Restored
from aflow.errors import CheckpointError
from aflow.model.key_groups import KeyGroupRange
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import check_storage
from aflow.testing.virtual_time import virtual_time

Make = Callable[[Path], DirectoryStorage]


@pytest.mark.asyncio
async def test_a_folder_is_a_storage(tmp_path: Path) -> None:
    await check_storage(lambda place: DirectoryStorage(tmp_path / place))


class Shared(DirectoryStorage):
    """Opens a place that is in use."""

    async def open(self, flow: str) -> None:
        with suppress(CheckpointError):
            await super().open(flow)


class Numberless(DirectoryStorage):
    """Uses numbers twice."""

    async def next_id(self) -> int:
        return 1


class Stateless(DirectoryStorage):
    """Reads no states back."""

    async def latest(self) -> Restored | None:
        restored = await super().latest()
        return None if restored is None else replace(restored, states={})


class Forgetful(DirectoryStorage):
    """Reads no state of single steps back."""

    async def latest_of(self, step: str, groups: KeyGroupRange) -> Restored | None:
        restored = await super().latest_of(step, groups)
        return None if restored is None else replace(restored, states={})


class Exclusive(DirectoryStorage):
    """Cannot read while a part is written."""

    writing = False

    async def write_part(
        self, checkpoint: int, task: str, subtask: int, steps: Mapping[str, OperatorSnapshot]
    ) -> FileRef:
        self.writing = True
        try:
            for _ in range(2000):  # long enough for a read to begin
                await asyncio.sleep(0)
            return await super().write_part(checkpoint, task, subtask, steps)
        finally:
            self.writing = False

    async def latest(self) -> Restored | None:
        return None if self.writing else await super().latest()


class Keepsake(DirectoryStorage):
    """Discards nothing."""

    async def discard(self, checkpoint: int) -> None:
        return None


class Hasty(DirectoryStorage):
    """Sweeps the parts of checkpoints that are not completed, and no others."""

    async def sweep(self, keep: Collection[FileRef]) -> None:
        completed = self._opened().checkpoints.values()
        files = [*keep, *(ref for manifest in completed for ref in manifest.files)]
        kept = {Path(ref.path).name for ref in files}
        for path in (self.folder / "parts").iterdir():
            if path.name not in kept:
                path.unlink()


class Impatient(DirectoryStorage):
    """Sweeps all parts except those of ``keep``."""

    async def sweep(self, keep: Collection[FileRef]) -> None:
        kept = {Path(ref.path).name for ref in keep}
        for path in (self.folder / "parts").iterdir():
            if path.name not in kept:
                path.unlink()


class Lossy(DirectoryStorage):
    """Loses changes when it compacts."""

    async def compact(
        self, checkpoint: int, task: str, subtask: int, step: str, chain: Sequence[Link]
    ) -> FileRef:
        return chain[0].file


class Overwriting(DirectoryStorage):
    """Exports to a path where something is."""

    async def export(self, manifest: Manifest, path: str) -> Manifest:
        with suppress(CheckpointError):
            return await super().export(manifest, path)
        return manifest


class Hanging(DirectoryStorage):
    """Never returns from ``kept``."""

    async def kept(self) -> list[int]:
        await asyncio.get_running_loop().create_future()
        return []


class Littering(DirectoryStorage):
    """Has a running task after ``close``."""

    async def close(self) -> None:
        await super().close()
        self.task = asyncio.create_task(asyncio.sleep(3600))


@pytest.mark.parametrize(
    ("make", "how"),
    [
        pytest.param(
            Shared, "open() of a place that is in use raises no CheckpointError", id="shared"
        ),
        pytest.param(Numberless, "next_id() is 1, though a part of checkpoint 9", id="numberless"),
        pytest.param(Stateless, "the states of two subtasks are {} instead of", id="stateless"),
        pytest.param(Forgetful, "the state that latest_of() gives is None", id="forgetful"),
        pytest.param(
            Exclusive, "latest() is None while a further checkpoint is written", id="exclusive"
        ),
        pytest.param(Keepsake, "kept() after discard(2) is [1, 2]", id="keepsake"),
        pytest.param(Hasty, "beside writers/parts", id="hasty"),
        pytest.param(Impatient, "latest() raises RestoreError", id="impatient"),
        pytest.param(Lossy, "the states of a compacted chain are", id="lossy"),
        pytest.param(Overwriting, "export() to a path that exists raises no", id="overwriting"),
        pytest.param(Hanging, "kept() did not return within 0.2 s", id="hanging"),
        pytest.param(Littering, "leaks: task", id="littering"),
    ],
)
@pytest.mark.asyncio
async def test_a_storage_that_breaks_the_contract_is_found(
    make: Make, how: str, tmp_path: Path
) -> None:
    patience = timedelta(seconds=0.2 if make is Hanging else 10)

    with pytest.raises(AssertionError) as caught:
        await check_storage(lambda place: make(tmp_path / place), patience=patience)

    assert make.__name__ in str(caught.value)
    assert how in str(caught.value)


class Blocking(DirectoryStorage):
    """Has a method that is not async."""

    def kept(self) -> list[int]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return []


@pytest.mark.asyncio
async def test_a_method_that_is_not_async_is_named(tmp_path: Path) -> None:
    make: Any = Blocking
    expected = r"^Blocking: kept\(\) returned \[\], which cannot be awaited; define the method with async def"

    with pytest.raises(AssertionError, match=expected):
        await check_storage(lambda place: make(tmp_path / place))


@virtual_time
async def test_a_storage_is_checked_in_virtual_time(tmp_path: Path) -> None:
    await check_storage(lambda place: DirectoryStorage(tmp_path / place))
