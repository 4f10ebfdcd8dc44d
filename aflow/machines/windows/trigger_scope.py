"""A part of what a trigger remembers, so that a trigger made of others can give each of them its own."""

from __future__ import annotations

from typing import TypeVar, cast

from aflow.machines.windows.trigger import MergeContext, TriggerContext
from aflow.model.time import Timestamp

S = TypeVar("S")


class Scope:
    """The context of a window, in which names stand behind a prefix. Timers are those of the window, as they are."""

    __slots__ = ("_ctx", "_prefix")

    def __init__(self, prefix: str, ctx: TriggerContext) -> None:
        self._prefix = prefix
        self._ctx = ctx

    @property
    def watermark(self) -> Timestamp:
        return self._ctx.watermark

    @property
    def processing_time(self) -> Timestamp:
        return self._ctx.processing_time

    def set_event_timer(self, at: Timestamp) -> None:
        self._ctx.set_event_timer(at)

    def delete_event_timer(self, at: Timestamp) -> None:
        self._ctx.delete_event_timer(at)

    def set_processing_timer(self, at: Timestamp) -> None:
        self._ctx.set_processing_timer(at)

    def delete_processing_timer(self, at: Timestamp) -> None:
        self._ctx.delete_processing_timer(at)

    def get(self, name: str, default: S) -> S:
        return self._ctx.get(f"{self._prefix}.{name}", default)

    def put(self, name: str, value: object) -> None:
        self._ctx.put(f"{self._prefix}.{name}", value)

    def drop(self, name: str) -> None:
        self._ctx.drop(f"{self._prefix}.{name}")

    def merged(self, name: str, default: S) -> list[S]:
        """Only within ``on_merge``, whose context has it."""
        return cast("MergeContext", self._ctx).merged(f"{self._prefix}.{name}", default)
