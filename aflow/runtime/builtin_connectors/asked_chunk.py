"""A chunk with the record of a question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from aflow.connect import Chunk
from aflow.model.questions import Correlation

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class AskedChunk(Chunk[T_co]):
    """One record; what is made of it belongs to ``correlation``. Not joined with other chunks."""

    correlation: Correlation | None = None
