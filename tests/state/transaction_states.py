"""A clock, a time to live and states that change in place, for tests of transactions."""

from __future__ import annotations

from datetime import timedelta

from aflow.state.aggregate import Aggregate

TTL = timedelta(milliseconds=1000)


class Watch:
    time = 10_000

    def now(self) -> int:
        return self.time


class Gathered(Aggregate[int, list[int], list[int]]):
    """An aggregate whose result is its accumulator, which it changes in place."""

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
