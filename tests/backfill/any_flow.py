"""Flows of any shape, for properties of their fragments. They need not run, so their functions do nothing of use."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

import aflow as af

SIDE = af.Tag[Any]("side")
_MINUTE = timedelta(minutes=1)


class _Meet(af.CoProcess[Any, Any, Any, Any]):
    def process_left(self, value: Any, ctx: af.Context[Any]) -> Iterable[Any]:
        return (value,)

    def process_right(self, value: Any, ctx: af.Context[Any]) -> Iterable[Any]:
        return (value,)


async def _answer(value: Any) -> Any:
    return value


def _same(value: Any) -> Any:
    return value


@st.composite
def flows(draw: st.DrawFn) -> af.Flow:
    """A flow of one to three sources and up to a dozen steps; each stream is read at least once."""
    flow = af.Flow("any")
    streams: list[af.Stream[Any]] = [
        flow.source([1], name=f"source {at}").event_time(_same)
        for at in range(draw(st.integers(1, 3)))
    ]
    unread = set(range(len(streams)))
    for number in range(draw(st.integers(0, 12))):
        one, other = (draw(st.integers(0, len(streams) - 1)) for _ in range(2))
        kind = draw(st.sampled_from(_KINDS))
        made = _step(kind, streams[one], streams[other], f"{kind} {number}")
        unread -= {one, other} if kind in _TWO else {one}
        for stream in made:
            unread.add(len(streams))
            streams.append(stream)
    for at in sorted(unread | draw(st.sets(st.integers(0, len(streams) - 1), max_size=3))):
        streams[at].to(af.CollectSink[Any](), name=f"sink {at}")
    return flow


_TWO = ("union", "connect", "interval_join", "window_join")
_KINDS = ("map", "filter", "rebalance", "call", "reduce", "both folds", "window", "again", *_TWO)


def _step(kind: str, one: af.Stream[Any], other: af.Stream[Any], name: str) -> list[af.Stream[Any]]:
    """Return one or two streams made from ``one``, and from ``other`` if ``kind`` takes two."""
    keyed = one.key_by(_same) if kind not in _STATELESS else None
    if keyed is None:
        return _stateless(kind, one, other, name)
    match kind:
        case "reduce":
            return [keyed.reduce(max, name=name)]
        case "both folds":
            return [keyed.reduce(max, name=f"{name} max"), keyed.reduce(min, name=f"{name} min")]
        case "window":
            windows = keyed.window(af.Tumbling(_MINUTE)).reduce(max, name=name)
            return [windows, windows.late]
        case "connect":
            return [keyed.connect(other.key_by(_same)).process(_Meet(), name=name)]
        case "interval_join":
            between = (-_MINUTE, _MINUTE)
            return [keyed.interval_join(other.key_by(_same), between=between).inner(max, name=name)]
        case _:
            windowed = af.Tumbling(_MINUTE)
            return [keyed.window_join(other.key_by(_same), windowed).inner(max, name=name)]


_STATELESS = ("map", "filter", "rebalance", "call", "union", "again")


def _stateless(
    kind: str, one: af.Stream[Any], other: af.Stream[Any], name: str
) -> list[af.Stream[Any]]:
    match kind:
        case "map":
            return [one.map(_same, name=name)]
        case "filter":
            return [one.filter(_same, name=name)]
        case "rebalance":
            return [one.rebalance()]
        case "call":
            called = one.map_async(_answer, name=name, on_error=af.calls.DeadLetter(SIDE))
            return [called, called.side(SIDE)]
        case "again":
            return [one.event_time(_same, name=name)]
        case _:
            return [one.union(other, name=name)]
