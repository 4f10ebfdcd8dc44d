"""Batches folded into accumulators, by key and piece of time: the loops in which fast window steps spend their time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from aflow.model.batch import Batch
from aflow.model.keys import check_key
from aflow.model.time import Timestamp
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import RAISED, Operator
from aflow.state.aggregates.exact import plus


def fold_into(
    contents: dict[Hashable, Any],
    batch: Batch[Any],
    keys: Sequence[Hashable],
    accumulation: Accumulation,
    step: Operator,
) -> None:
    """Fold a batch that lies in one piece of time, whose ``contents`` are accumulators by key.

    Raises ``OperatorError`` of ``step`` for what can be no key, and for what fails in the accumulation.
    """
    # Hot path (benchmark `keyed_window`, and `spark` for sums).
    add, first, number_of = accumulation.add, accumulation.first, accumulation.number_of
    left = iter(batch.values)
    try:
        for key, value in zip(keys, left, strict=False):
            try:
                held = contents[key]
            except KeyError:
                check_key(key)
                contents[key] = first(value)
            else:
                if number_of is None:
                    contents[key] = add(held, value)
                elif type(number := number_of(value)) is int:
                    held[0] += number  # as `add` does, whose call would take as long as all of this
                else:
                    plus(held, number)
    except RAISED as exc:
        raise step.failure(exc, batch, left) from exc


def fold_by_time(
    contents_at: Callable[[Timestamp], dict[Hashable, Any]],
    piece_at: Callable[[Timestamp], tuple[Timestamp, Timestamp]],
    batch: Batch[Any],
    keys: Sequence[Hashable],
    times: Sequence[Timestamp],
    accumulation: Accumulation,
    step: Operator,
) -> None:
    """Fold a batch that lies in several pieces of time: ``piece_at(time)`` is where one begins and ends (exclusive).

    ``contents_at`` is given where it begins. Raises as ``fold_into``.
    """
    # Hot path (benchmark `sliding`): nearly all records of a batch are in two or three pieces.
    add, first = accumulation.add, accumulation.first
    low = high = 0
    contents: dict[Hashable, Any] = {}
    left = iter(batch.values)
    try:
        for key, time, value in zip(keys, times, left, strict=False):
            if not low <= time < high:
                low, high = piece_at(time)
                contents = contents_at(low)
            try:
                held = contents[key]
            except KeyError:
                check_key(key)
                contents[key] = first(value)
            else:
                contents[key] = add(held, value)
    except RAISED as exc:
        raise step.failure(exc, batch, left) from exc
