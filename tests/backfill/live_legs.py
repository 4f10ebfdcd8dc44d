"""A live job over the first records of its sources, which leaves a savepoint in the midst of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import aflow as af
from aflow.backfill.contents import newest_manifest
from aflow.backfill.live_savepoint import LiveSavepoint
from aflow.backfill.savepoint_steps import read_steps
from aflow.testing import Pause, ScriptedSource, VirtualClock, advance, virtual_time
from tests.backfill.comparison import Case, Results
from tests.backfill.items import Item, Row, millis
from tests.runtime.checkpoints.ledger_sink import LedgerSink


def live_leg(
    case: Case,
    folder: Path,
    first: Mapping[str, int],
    *,
    waited: int,
    parallelism: int = 1,
    restore: Path | None = None,
    seed: int | None = None,
) -> Results:
    """Results of a live job over the ``first`` records of each source, up to its savepoint ``waited`` ms later.

    The sources remain open, so time does not end, and calls that take longer are under way. The savepoint names the
    results: none was committed before.
    """
    sinks = {name: LedgerSink[Row]() for name in case.new_sinks()}
    sources = {
        name: ScriptedSource(*items[: first[name]], Pause(timedelta(days=1)))
        for name, items in case.sources.items()
    }

    async def main() -> None:
        async with case.flow(sources, sinks).start(
            parallelism=parallelism,
            options=af.Options(clock=VirtualClock()),
            checkpointing=af.Checkpointing(every=None, storage=folder.with_name("live storage")),
            restore="fresh" if restore is None else restore,
        ) as job:
            await advance(millis(waited))
            await job.savepoint(folder)
            await job.cancel()

    virtual_time.run(main, seed=seed)
    steps = {one.step.name: one for one in read_steps(*newest_manifest(folder))}
    for name, sink in sinks.items():
        for _, one in steps[name].prepared() if name in steps else ():
            sink.commit(one)
    return {name: sorted(sink.values) for name, sink in sinks.items()}


def unread(case: Case, folder: Path) -> dict[str, Sequence[Item]]:
    """The records of each source that the live job of the savepoint at ``folder`` has not read."""
    places = LiveSavepoint(folder).positions()
    rest: dict[str, Sequence[Item]] = {}
    for name, items in case.sources.items():
        (place,) = places[name].values()
        at = place.position or 0
        assert isinstance(at, int)
        rest[name] = items[at + place.skip :]
    return rest


def newest_of(case: Case, rest: Mapping[str, Sequence[Item]]) -> int:
    """The newest timestamp of the records that are not in ``rest``."""
    return max(
        (
            item.at
            for name, items in case.sources.items()
            for item in items[: len(items) - len(rest[name])]
        ),
        default=-1,
    )
