"""``PreparedFile``: a data file of a checkpoint, as a committable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, cast

from aflow.connect import Committable
from aflow_connectors.commit_errors import foreign_committable
from aflow_connectors.owners import OWNER, is_owner

FILE_NAME: Final = re.compile(
    rf"part-(?P<owner>{OWNER})-(?P<subtask>\d{{5}})-(?P<checkpoint>\d{{6,}})-[0-9a-f]{{8}}\.parquet"
)
"""The name of a data file."""


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A data file of a checkpoint; ``path`` is empty if there are no rows."""

    checkpoint: int
    owner: str
    app: str
    """The id of the application transaction."""
    path: str = ""
    size: int = 0
    rows: int = 0
    since: int = 0
    """The version of the table at which the run began."""

    @classmethod
    def of(cls, committable: Committable, *, sink: str) -> PreparedFile:
        """Return the decoded committable. Raises ``RestoreError`` unless a sink of Delta tables prepared it."""
        match cast("dict[str, object]", committable):
            case {
                "checkpoint": int(number),
                "owner": str(owner),
                "app": str(app),
                "path": str(path),
                "size": int(size),
                "rows": int(rows),
            } if is_owner(owner) and app.startswith(f"aflow-{owner}-"):
                found = FILE_NAME.fullmatch(path)
                named = found is not None and found["owner"] == owner
                since = cast("dict[str, object]", committable).get("since", 0)
                fits = not path or (
                    named and found is not None and int(found["checkpoint"]) == number
                )
                if fits and isinstance(since, int) and since >= 0:
                    return cls(number, owner, app, path, size, rows, since)
            case _:
                pass
        raise foreign_committable(sink, committable)
