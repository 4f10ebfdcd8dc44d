"""Runs of programs that take no checkpoints, with checkpoints: their results must not depend on them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

from aflow import Checkpointing, Flow

#: Interval of the checkpoints of a program that runs for some milliseconds.
EVERY = timedelta(milliseconds=20)


@contextmanager
def checkpointed(*, every: timedelta | None) -> Generator[None]:
    """Give each job that says nothing of checkpoints a folder of its own to take them into.

    With None there is the final one only, and the check at the first records: in virtual time, hours have many others.
    """
    with tempfile.TemporaryDirectory() as place:

        def with_checkpoints(start: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(start)
            def started(flow: Flow, **options: Any) -> Any:
                if options.get("checkpointing") is None:
                    folder = Path(tempfile.mkdtemp(dir=place))
                    options["checkpointing"] = Checkpointing(storage=folder, every=every)
                return start(flow, **options)

            return started

        with patch.object(Flow, "start", with_checkpoints(Flow.start)):
            yield
