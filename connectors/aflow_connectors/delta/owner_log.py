"""``OwnerLog``: the commits of a sink in the log of its table."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aflow_connectors.delta.prepared_file import PreparedFile

LOG_KEY: Final = "aflow"
"""The mark of commits in the log."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The mark of a commit of the sink in the log of the table."""

    owner: str
    checkpoint: int
    """The checkpoint of the rows. For a withdrawal: the restored one, after which rows were removed."""
    kind: str
    """"rows" or "withdrawal"."""
    path: str = ""
    """The data file."""
    app: str = ""
    """The id of the application transaction; empty in entries of earlier versions."""


@dataclass(frozen=True, slots=True)
class OwnerLog:
    """The commits of an owner since the run of a restored checkpoint began, by version, oldest first.

    Invariant: all earlier rows of its later checkpoints were withdrawn when the run began.
    """

    entries: Sequence[tuple[int, LogEntry]]
    is_complete: bool
    """False if the log was shortened meanwhile."""

    @classmethod
    def of(cls, table: Any, prepared: Sequence[PreparedFile]) -> OwnerLog:
        """Read the log for the restored ``prepared``. Commits that a RESTORE of the table has undone are left out."""
        since = min(one.since for one in prepared)
        count = table.version() - since
        history: list[dict[str, Any]] = table.history(count) if count > 0 else []
        owners = {one.owner for one in prepared}
        found: list[tuple[int, LogEntry]] = []
        for commit in sorted(history, key=lambda one: int(one["version"])):
            if commit.get("operation") == "RESTORE":
                target = commit.get("operationParameters", {}).get("version")
                if target is not None:
                    found = [one for one in found if one[0] <= int(target)]
            elif isinstance(text := commit.get(LOG_KEY), str):
                entry = LogEntry(**json.loads(text))
                if entry.owner in owners:
                    found.append((int(commit["version"]), entry))
        return cls(found, len(history) >= count)

    @property
    def withdrawn_down_to(self) -> int | None:
        """The oldest checkpoint after which rows were withdrawn; None: no withdrawal."""
        numbers = [entry.checkpoint for _, entry in self.entries if entry.kind == "withdrawal"]
        return min(numbers, default=None)

    def branches(self, restored: int, prepared: Sequence[PreparedFile]) -> bool:
        """Return True if a run that began from an older checkpoint has written rows up to checkpoint ``restored``.

        A restore of an older checkpoint withdraws nothing if there are no later rows.
        """
        runs = {_run_of(one.app) for one in prepared}
        return any(
            entry.kind == "rows"
            and entry.app != ""
            and entry.checkpoint <= restored
            and _run_of(entry.app) not in runs
            for _, entry in self.entries
        )

    def rewritten(self, restored: int, files: Collection[str]) -> bool:
        """Return True if rows after checkpoint ``restored`` are neither in their ``files`` nor withdrawn."""
        missing: dict[str, int] = {}
        for _, entry in self.entries:
            if entry.kind == "withdrawal":
                missing = {path: n for path, n in missing.items() if n <= entry.checkpoint}
            elif entry.checkpoint > restored and entry.path not in files:
                missing[entry.path] = entry.checkpoint
        return bool(missing)


def _run_of(app: str) -> str:
    """Return the id of a writer without its subtask."""
    return app.rpartition("-")[0]
