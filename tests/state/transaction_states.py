"""A clock, a lifetime and states that change in place: what tests of transactions have in common."""

from __future__ import annotations

from datetime import timedelta

from aflow.state.aggregate import Aggregate

TTL = timedelta(milliseconds=1000)


class Watch:
    time = 10_000

    def now(self) -> int:
        return self.time


class Gathered(Aggregate[int, list[int], list[int]]):
    """Its accumulator changes in place, and is what it gives."""

    def create(self) -> list[int]:
        return []

    def add(self, acc: list[int], value: int) -> list[int]:
        acc.append(value)
        return acc

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        raise AssertionError("states do not merge")

    def result(self, acc: list[int]) -> list[int]:
        return acc


def joined(a: list[int], b: list[int]) -> list[int]:
    a.extend(b)
    return a
