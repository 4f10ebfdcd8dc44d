"""Functions that run on executors, and the payload that is sent with them.

Spark pickles a function by value if it cannot be found by name. The function made here is one: a closure over bytes and
strings, which can be unpickled where aflow is missing and reports that. Everything else is inside the bytes.
"""

from __future__ import annotations

import gc
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from inspect import getfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

import aflow_connectors
from aflow.connect import ConnectorError
from aflow.errors import AflowError, described
from aflow.model.distribution import with_extras
from aflow_connectors.spark.calls import CAUSED_BY
from aflow_connectors.spark.executor.worker_memory import worker_memory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

T = TypeVar("T")

#: Folders of frames that are not user code.
_OURS: Final = tuple(
    f"{folder}{os.sep}" for folder in (Path(getfile(AflowError)).parent, *aflow_connectors.__path__)
)

#: New objects after which Python searches for cycles.
_OBJECTS: Final = 50_000

MapBatches: TypeAlias = Callable[[Iterator[Any]], Iterator[Any]]
"""Argument of ``DataFrame.mapInArrow``: maps the Arrow batches of a partition to others."""


@dataclass(frozen=True)  # not slotted: it is generic
class Payload(Generic[T]):
    """Content sent to executors, unpickled once in each worker process."""

    content: T
    digest: str
    """Equal for equal bytes: key of what the process keeps for it."""
    context: bytes = b""
    """Bytes of this run, which do not count in ``digest``."""


def executor_function(
    run: Callable[[Payload[T], Iterator[Any]], Iterator[Any]],
    pickled: bytes,
    *,
    what: str,
    context: bytes = b"",
) -> MapBatches:
    """Return ``run`` bound to the content of ``pickled``, for ``mapInArrow``; ``run`` is a function of an aflow module.

    A worker process unpickles equal ``pickled`` once. ``context`` is passed as it is, and may differ in each run.

    On an executor it raises ``ImportError`` if aflow cannot be imported there, and ``ConnectorError`` if the content
    cannot be unpickled. Both messages give the cure and name ``what``.
    """
    module, name = run.__module__, run.__qualname__
    requirement = with_extras("spark")

    def on_executor(batches: Iterator[Any]) -> Iterator[Any]:
        # Only strings and bytes from outside this function: other objects would be pickled with it.
        import importlib
        import socket
        import sys

        try:
            shipping = importlib.import_module("aflow_connectors.spark.executor.functions")
        except ImportError as exc:
            raise ImportError(
                f"{what} cannot run on executor {socket.gethostname()}: {sys.executable} cannot import aflow ({exc}). "
                f"Bring it there: install {requirement} in the image of the executors, or send an environment packed "
                f"by venv-pack in spark.archives with PYSPARK_PYTHON inside it, or over Spark Connect by "
                f"session.addArtifacts(…, archive=True)"
            ) from exc
        return shipping.run_pickled(module, name, pickled, what, batches, context)  # type: ignore[no-any-return]

    return on_executor


def map_in_arrow(frame: DataFrame, function: MapBatches, schema: StructType | str) -> DataFrame:
    """Return ``frame.mapInArrow(function, schema)``."""
    untyped: Any = frame  # mapInArrow has types of pyarrow, which has none
    return cast("DataFrame", untyped.mapInArrow(function, schema))


def run_pickled(
    module: str,
    name: str,
    pickled: bytes,
    what: str,
    batches: Iterator[Any],
    context: bytes = b"",
) -> Iterator[Any]:
    """Run the content that ``executor_function`` pickled."""
    try:
        payload = _payload_of(pickled)
    # Unpickling runs user code.
    except Exception as exc:
        raise ConnectorError(
            f"{what} was sent to an executor and cannot be unpickled there: {described(exc)}; what it "
            f"imports has to be there as well: session.addArtifacts(…, pyfile=True), spark.submit.pyFiles, or the image"
        ) from exc
    _collect_less()
    if _is_worker():
        worker_memory().on_task_begin()
    run: Callable[[Payload[Any], Iterator[Any]], Iterator[Any]] = getattr(
        import_module(module), name
    )
    if context:
        payload = replace(payload, context=context)
    return _returning_memory(_with_causes(run(payload, batches)))


def _returning_memory(results: Iterator[Any]) -> Iterator[Any]:
    """Yield ``results``; then return memory that the task has needed and the process no longer uses."""
    memory = worker_memory()
    try:
        yield from results
    finally:
        memory.on_task_end()


def _collect_less() -> None:
    """Raise the threshold of Python's cycle collector, in a worker process of Spark.

    Thousands of live records trigger collections again and again: that took 0.4 of the time of a backfill. Objects
    without cycles are still freed at once.
    """
    if 0 < gc.get_threshold()[0] < _OBJECTS:  # 0: the user has turned it off
        gc.set_threshold(_OBJECTS, 20, 100)


def _is_worker() -> bool:
    """Return True in a process of Spark that runs a task, and False in one that calls the function itself."""
    from pyspark import TaskContext

    return TaskContext.get() is not None


def _with_causes(results: Iterator[Any]) -> Iterator[Any]:
    """Yield ``results``; add the frames of an error's cause, which are user code, as a note.

    Spark drops causes when it shortens tracebacks, which is its default, but keeps notes. The frames of aflow's own
    errors are removed, since Spark truncates long messages and the cause says more.
    """
    try:
        yield from results
    except Exception as exc:
        if exc.__cause__ is None:
            raise
        if frames := _user_traceback(exc.__cause__):
            exc.add_note(f"{CAUSED_BY}\n{frames}")
        raise (exc.with_traceback(None) if isinstance(exc, AflowError) else exc) from None


def _user_traceback(cause: BaseException) -> str:
    """Return the traceback of ``cause`` without aflow's frames if there are others; empty if all are aflow's."""
    summary = traceback.TracebackException.from_exception(cause)
    theirs = [frame for frame in summary.stack if not frame.filename.startswith(_OURS)]
    if theirs:
        summary.stack = traceback.StackSummary.from_list(theirs)
    elif type(cause).__module__.startswith("aflow"):
        return ""
    return "".join(summary.format()).rstrip()


@lru_cache(maxsize=16)
def _payload_of(pickled: bytes) -> Payload[Any]:
    return Payload(pickle.loads(pickled), sha256(pickled).hexdigest())
