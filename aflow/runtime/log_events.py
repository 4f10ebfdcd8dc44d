"""The records that the runtime writes to Python's logging: one event each, with fields for tools that parse them.

Each field is an attribute of the ``LogRecord`` (``extra=``), beside ``event``, which has the name. The table in
docs/guide/watching.md lists them all, and a test compares both.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from aflow.errors import InternalError


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One kind of log record."""

    name: str
    logger: str
    level: int
    fields: frozenset[str]

    def log(self, message: str, *args: object, **fields: object) -> None:
        """Log the event, with exactly its ``fields``. Raises ``InternalError`` for other ones."""
        self._log(message, args, fields, exception=False)

    def log_exception(self, message: str, *args: object, **fields: object) -> None:
        """As ``log``, with the exception that is being handled."""
        self._log(message, args, fields, exception=True)

    def _log(
        self, message: str, args: tuple[object, ...], fields: dict[str, object], *, exception: bool
    ) -> None:
        if fields.keys() != self.fields:
            raise InternalError(
                f"log event {self.name!r} has the fields {sorted(self.fields)}, not {sorted(fields)}"
            )
        logging.getLogger(self.logger).log(
            self.level, message, *args, exc_info=exception, extra={"event": self.name, **fields}
        )


def _event(name: str, logger: str, level: int, fields: str) -> LogEvent:
    return LogEvent(name, f"aflow.{logger}", level, frozenset(fields.split()))


STATUS: Final = _event("job_status", "job", logging.INFO, "job status previous_status")
FAILED: Final = _event("job_failed", "job", logging.ERROR, "job error_type error")
RESTART: Final = _event(
    "job_restart", "job", logging.WARNING, "job attempt delay_ms error_type error"
)
RESTORED: Final = _event("job_restored", "job", logging.INFO, "job checkpoint path passed_over")
CHECKPOINT_SKIPPED: Final = _event("checkpoint_skipped", "job", logging.WARNING, "job reason")
STOP_REQUESTED: Final = _event(
    "stop_requested", "job", logging.INFO, "job drain savepoint deadline_s"
)
STOP_TIMED_OUT: Final = _event("stop_timed_out", "job", logging.WARNING, "job deadline_s left")
ON_EVENT_FAILED: Final = _event("on_event_failed", "job", logging.ERROR, "job")
RESULTS_NOT_STORED: Final = _event("results_not_stored", "job", logging.WARNING, "job step")

CHECKPOINT_COMPLETED: Final = _event(
    "checkpoint_completed",
    "job",
    logging.DEBUG,
    "job checkpoint kind duration_ms bytes path",
)
CHECKPOINT_ABORTED: Final = _event(
    "checkpoint_aborted", "job", logging.DEBUG, "job checkpoint kind outcome reason"
)
CHECKPOINT_FAILED: Final = _event(
    "checkpoint_failed", "job", logging.WARNING, "job checkpoint kind reason"
)
CHECKPOINT_NOT_REMOVED: Final = _event(
    "checkpoint_not_removed", "checkpoints", logging.WARNING, "job checkpoint error"
)
PARTS_NOT_REMOVED: Final = _event("parts_not_removed", "checkpoints", logging.WARNING, "job error")
PARTS_NOT_COMPACTED: Final = _event(
    "parts_not_compacted", "checkpoints", logging.WARNING, "job step error"
)

LOOP_BLOCKING: Final = _event(
    "loop_blocking", "calls", logging.WARNING, "job step resource where seconds"
)
LOOP_BLOCKED: Final = _event(
    "loop_blocked", "calls", logging.WARNING, "job step resource where seconds"
)
CALL_ABANDONED: Final = _event("call_abandoned", "calls", logging.WARNING, "job step what seconds")

RECORDS_REFUSED: Final = _event(
    "records_refused", "record_log", logging.WARNING, "folder records error"
)
SEGMENTS_NOT_REMOVED: Final = _event(
    "segments_not_removed", "record_log", logging.WARNING, "folder error"
)
LOG_TAIL_CUT: Final = _event(
    "log_tail_cut", "record_log", logging.WARNING, "folder file bytes offset error"
)
LOG_NOT_CLOSED: Final = _event("log_not_closed", "record_log", logging.WARNING, "folder error")

TELEMETRY_FAILED: Final = _event(
    "telemetry_failed", "telemetry", logging.WARNING, "error_type error"
)

#: All events, as the guide lists them.
EVENTS: Final = (
    STATUS,
    FAILED,
    RESTART,
    RESTORED,
    CHECKPOINT_SKIPPED,
    STOP_REQUESTED,
    STOP_TIMED_OUT,
    ON_EVENT_FAILED,
    RESULTS_NOT_STORED,
    CHECKPOINT_COMPLETED,
    CHECKPOINT_ABORTED,
    CHECKPOINT_FAILED,
    CHECKPOINT_NOT_REMOVED,
    PARTS_NOT_REMOVED,
    PARTS_NOT_COMPACTED,
    LOOP_BLOCKING,
    LOOP_BLOCKED,
    CALL_ABANDONED,
    RECORDS_REFUSED,
    SEGMENTS_NOT_REMOVED,
    LOG_TAIL_CUT,
    LOG_NOT_CLOSED,
    TELEMETRY_FAILED,
)
