"""A job whose newest checkpoint is damaged continues from one that shares no file with it, with the right output."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

import aflow as af
from aflow.errors import SourceError
from aflow.testing import Crash, Pause, ScriptedSource, VirtualClock, virtual_time
from aflow.testing.scripted_source import Line
from aflow_connectors.files import JsonLinesSink

pytestmark = pytest.mark.usefixtures("inline_threads")

MILLIS: Final = timedelta(milliseconds=1)
RECORDS: Final = 400
KEYS: Final = 40
#: The first run fails after so many records.
CRASH: Final = 300


def numbers(*, crash: bool) -> ScriptedSource[int]:
    """A pause after every fourth record, in which time advances; two splits."""
    splits: dict[str, list[Line[int]]] = {}
    for split in range(2):
        lines = splits[f"split {split}"] = []
        for number in range(split, RECORDS, 2):
            if number == CRASH + split:
                lines.append(Crash() if crash and not split else Pause(MILLIS))
            lines.append(number)
            if number % 8 == split:
                lines.append(Pause(3 * MILLIS))
    return ScriptedSource.of_splits(splits)


def run(folder: Path, independent_every: int | None, *, crash: bool) -> list[af.JobEvent]:
    """Count the records of each key. Return the events."""
    events: list[af.JobEvent] = []

    async def main() -> None:
        flow = af.Flow("counts")
        keyed = flow.source(numbers(crash=crash), name="numbers").key_by(lambda n: n % KEYS)
        counts = keyed.fold(_nothing, _counted, name="counts")
        counts.map(list, name="rows").to(JsonLinesSink(folder / "out"), name="out")
        await flow.run(
            parallelism=2,
            options=af.Options(clock=VirtualClock()),
            checkpointing=af.Checkpointing(
                storage=folder / "state",
                every=10 * MILLIS,
                independent_every=independent_every,
            ),
            on_event=events.append,
        )

    virtual_time.run(main)
    return events


def _nothing() -> tuple[int, int]:
    return 0, 0


def _counted(so_far: tuple[int, int], number: int) -> tuple[int, int]:
    return number % KEYS, so_far[1] + 1


def output(folder: Path) -> list[list[int]]:
    files = sorted((folder / "out").glob("[!._]*"))
    return sorted(json.loads(line) for file in files for line in file.read_text().splitlines())


EXPECTED: Final = sorted(
    [key, count + 1] for key in range(KEYS) for count in range(RECORDS // KEYS)
)


def crashed(folder: Path, independent_every: int | None) -> Path:
    with pytest.raises(SourceError, match="a crash of the script"):
        run(folder, independent_every, crash=True)
    return folder


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "flipped": flipped,
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "missing": lambda data: None,
}


def manifests(folder: Path) -> list[Path]:
    return sorted((folder / "state").glob("checkpoint-*.json"))


def files_of(manifest: Path) -> set[Path]:
    """Return the parts that a checkpoint needs."""
    named = manifest.read_text()
    parts = (manifest.parent / "parts").iterdir()
    return {part for part in parts if part.name in named}


def damaged(folder: Path, place: Path, damage: str) -> Iterator[Path]:
    """Yield copies of ``folder``, each with another damaged file of its newest checkpoint."""
    newest = manifests(folder)[-1]
    for at, file in enumerate(sorted({newest, *files_of(newest)})):
        copy = place / f"{damage} {at}"
        shutil.copytree(folder, copy)
        changed = DAMAGES[damage](file.read_bytes())
        target = copy / file.relative_to(folder)
        target.unlink()
        if changed is not None:
            target.write_bytes(changed)
        yield copy


@pytest.fixture(scope="module")
def independent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return crashed(tmp_path_factory.mktemp("independent"), 4)


def test_one_kept_checkpoint_shares_no_file_with_the_newest(independent: Path) -> None:
    *others, newest = manifests(independent)

    shared = [files_of(one) & files_of(newest) for one in others]

    assert len(files_of(newest)) > 3
    assert shared[0] == set()
    assert any(shared), "the newest is independent of all: nothing is proved about the others"


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_file_of_the_newest_checkpoint_is_damaged_the_output_is_right(
    damage: str, independent: Path, tmp_path: Path
) -> None:
    newest = int(manifests(independent)[-1].stem.partition("-")[2])

    for copy in damaged(independent, tmp_path, damage):
        (restored,) = [
            one for one in run(copy, 4, crash=False) if isinstance(one, af.restart.JobRestored)
        ]

        assert restored.checkpoint < newest
        assert f"checkpoint-{newest:06}.json" not in {one.name for one in manifests(copy)}
        assert restored.passed_over or damage == "missing"  # a manifest, for one
        assert output(copy) == EXPECTED


@pytest.mark.slow
def test_without_independent_checkpoints_some_damages_leave_nothing_to_restore(
    tmp_path: Path,
) -> None:
    folder = crashed(tmp_path / "shared", None)
    failures = 0

    for copy in damaged(folder, tmp_path, "flipped"):
        try:
            run(copy, None, crash=False)
        except af.RestoreError:
            failures += 1

    assert failures > 0
