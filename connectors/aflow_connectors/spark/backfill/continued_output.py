"""Output of a restored savepoint that a backfill would repeat or never commit: refused before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aflow.backfill.continuation import Continuation
from aflow.backfill.fragment_planner import before_time
from aflow.backfill.fragments import FragmentPlan
from aflow.errors import FlowDefinitionError, RestoreError
from aflow.model.time import Timestamp
from aflow_connectors.files.output.names import Parts
from aflow_connectors.files.output.pieces import PreparedPiece
from aflow_connectors.spark.backfill.results import ResultTarget
from aflow_connectors.spark.tables.folder_sink import SparkSink
from aflow_connectors.spark.tables.table_sink import SparkTableSink


def check_continued_output(
    plan: FragmentPlan,
    sinks: Mapping[str, ResultTarget],
    start: Continuation,
    until: Timestamp | None,
) -> None:
    """Raise ``FlowDefinitionError`` for output that would be written twice, or of which a part would stay invisible.

    ``until`` is epoch ms. Blocks.
    """
    written = {
        name for name, place in sinks.items() if isinstance(place, SparkSink | SparkTableSink)
    }
    continued = written & set(start.prepared)
    # The rows after a live job are new ones, and its records upstream of event_time were new once, too.
    for fragment in plan.fragments if start.live is None else ():
        before = before_time(fragment.nodes)
        for exit in fragment.exits:
            if exit.sink is None or exit.sink.name not in continued or exit.origin.id not in before:
                continue
            name = exit.sink.name
            raise FlowDefinitionError(
                f"sink {name!r} is upstream of event_time(…), so it gets all rows of source {fragment.head.name!r} "
                f"again, and the savepoint in {start.folder} names those that the earlier backfill has written: pass "
                f"{{{name!r}: None}} in sinks=, or a new folder"
            )
    if until is None:
        for name in sorted(set(start.prepared) - written):
            _refuse_pending(name, start)


def _refuse_pending(sink: str, start: Continuation) -> None:
    for _, committable in start.prepared[sink]:
        try:
            piece = PreparedPiece.of(committable, sink=sink)
        except RestoreError as exc:
            raise FlowDefinitionError(
                f"sink {sink!r}: the restored savepoint names output that is prepared and may not be committed, and "
                f"with until=None no savepoint is left from which a live job would commit it: give until= and "
                f"savepoint="
            ) from exc
        parts = Parts.of_piece(Path(piece.folder), piece.piece)
        # The piece of a table has no such name: it is in the table.
        if parts is not None and parts.pending(piece.piece, piece.owner).exists():
            raise FlowDefinitionError(
                f"sink {sink!r}: {piece.piece} in {piece.folder} is output of the restored savepoint and not visible "
                f"yet, and with until=None no savepoint is left from which a live job would commit it: pass the sink "
                f"itself in sinks=, or give until= and savepoint="
            )
