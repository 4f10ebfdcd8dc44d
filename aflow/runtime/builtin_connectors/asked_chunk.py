"""A chunk with the record of a question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from aflow.connect import Chunk
from aflow.model.questions import Delivery

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class AskedChunk(Chunk[T_co]):
    """One record; what is made of it belongs to ``delivery``. Not joined with other chunks."""

    delivery: Delivery | None = None
