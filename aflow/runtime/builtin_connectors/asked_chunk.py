"""A chunk with the record of a question, or with records whose way through the pipeline is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from aflow.connect import Chunk
from aflow.model.questions import Correlation

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class AskedChunk(Chunk[T_co]):
    """All results of its records belong to ``correlation``. Not joined with other chunks.

    It has one record, unless ``correlation`` may be released several times: a large chunk is divided, and the parts
    have the same one.
    """

    correlation: Correlation | None = None
    arrived_at: float | None = None
    """The time (s, steady clock) from which latency markers measure; None: the start of the processing."""
