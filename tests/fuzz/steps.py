"""Stateless and async steps of the fuzzed flows, each with its oracle."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TypeAlias

import aflow as af
from tests.fuzz.functions import FAILED, Unlucky
from tests.fuzz.oracles import Rec

Records: TypeAlias = af.Stream[Rec]


class Policy(Enum):
    """The error policy of a step."""

    DROP = "drop"
    FALLBACK = "fallback"
    DEAD_LETTER = "dead letter"

    @property
    def on_error(
        self,
    ) -> af.calls.Drop | af.calls.Fallback[Rec] | af.calls.DeadLetter[Rec]:
        match self:
            case Policy.DROP:
                return af.calls.Drop()
            case Policy.FALLBACK:
                return af.calls.Fallback(lambda value, _: instead_of(value))
            case Policy.DEAD_LETTER:
                return af.calls.DeadLetter(FAILED)

    def results(self, value: Rec) -> Sequence[Rec]:
        """Return the results for a record that failed."""
        return [instead_of(value)] if self is Policy.FALLBACK else []


def instead_of(value: Rec) -> Rec:
    return Rec(-value.n, value.key)


class Stateless(ABC):
    """A step without state. ``results`` is its oracle."""

    @property
    def keeps_order(self) -> bool:
        """True if records of a key stay in their order, at any parallelism."""
        return True

    @property
    def exchanges(self) -> bool:
        """True if records leave their subtask: timing decides then which records of a disordered stream are late."""
        return False

    @property
    def has_dead_letters(self) -> bool:
        """True if the step emits the records for which it raises to ``FAILED``."""
        return False

    @abstractmethod
    def on(self, stream: Records, name: str) -> Records: ...

    @abstractmethod
    def results(self, value: Rec) -> Sequence[Rec]: ...

    def fails(self, value: Rec) -> bool:
        """Return True if the step raises for a record."""
        return False


@dataclass(frozen=True)
class Map(Stateless):
    times: int
    plus: int

    def on(self, stream: Records, name: str) -> Records:
        return stream.map(self._mapped, name=name)

    def results(self, value: Rec) -> Sequence[Rec]:
        return [self._mapped(value)]

    def _mapped(self, value: Rec) -> Rec:
        return Rec(value.n * self.times + self.plus, value.key)


@dataclass(frozen=True)
class Filter(Stateless):
    modulus: int

    def on(self, stream: Records, name: str) -> Records:
        return stream.filter(lambda value: value.n % self.modulus, name=name)

    def results(self, value: Rec) -> Sequence[Rec]:
        return [value] if value.n % self.modulus else []


@dataclass(frozen=True)
class FlatMap(Stateless):
    modulus: int

    def on(self, stream: Records, name: str) -> Records:
        return stream.flat_map(self.results, name=name)

    def results(self, value: Rec) -> Sequence[Rec]:
        return [Rec(value.n + copy, value.key) for copy in range(value.n % self.modulus)]


@dataclass(frozen=True)
class Unreliable(Stateless):
    """A map that raises for numbers that ``modulus`` divides."""

    modulus: int
    policy: Policy
    batches: bool

    @property
    def has_dead_letters(self) -> bool:
        return self.policy is Policy.DEAD_LETTER

    def on(self, stream: Records, name: str) -> Records:
        on_error = self.policy.on_error
        if self.batches:
            return stream.map_batch(
                lambda values: [self._mapped(value) for value in values],
                on_error=on_error,
                name=name,
            )
        return stream.map(self._mapped, on_error=on_error, name=name)

    def results(self, value: Rec) -> Sequence[Rec]:
        return self.policy.results(value) if self.fails(value) else [Rec(value.n + 1, value.key)]

    def fails(self, value: Rec) -> bool:
        return value.n % self.modulus == 0

    def _mapped(self, value: Rec) -> Rec:
        if self.fails(value):
            raise Unlucky(value.n)
        return Rec(value.n + 1, value.key)


@dataclass(frozen=True)
class Rebalance(Stateless):
    @property
    def keeps_order(self) -> bool:
        return False

    @property
    def exchanges(self) -> bool:
        return True

    def on(self, stream: Records, name: str) -> Records:
        return stream.rebalance()

    def results(self, value: Rec) -> Sequence[Rec]:
        return [value]


class Order(Enum):
    """The order of results of async calls."""

    ORDERED = "ordered"
    UNORDERED = "unordered"
    BY_KEY = "by key"


@dataclass(frozen=True)
class Call(Stateless):
    """An async call that takes up to 6 ms, and raises each time for numbers that ``fails_for`` divides."""

    order: Order
    capacity: int
    fails_for: int
    policy: Policy
    retries: bool

    @property
    def keeps_order(self) -> bool:
        return self.order is not Order.UNORDERED

    @property
    def exchanges(self) -> bool:
        return self.order is Order.BY_KEY

    @property
    def has_dead_letters(self) -> bool:
        return self.policy is Policy.DEAD_LETTER

    def on(self, stream: Records, name: str) -> Records:
        retry = af.Retry(attempts=2, delay=timedelta(milliseconds=1)) if self.retries else None
        options = af.calls.CallOptions[Rec](
            capacity=self.capacity, on_error=self.policy.on_error, retry=retry
        )
        if self.order is Order.BY_KEY:
            keyed = stream.key_by(lambda value: value.key, name=f"{name} key")
            return keyed.map_async(self._called, name=name, **options)
        options["ordered"] = self.order is Order.ORDERED
        return stream.map_async(self._called, name=name, **options)

    def results(self, value: Rec) -> Sequence[Rec]:
        return self.policy.results(value) if self.fails(value) else [Rec(value.n + 3, value.key)]

    def fails(self, value: Rec) -> bool:
        return value.n % self.fails_for == 0

    async def _called(self, value: Rec) -> Rec:
        await asyncio.sleep(value.n * 7 % 4 * 0.002)
        if self.fails(value):
            raise Unlucky(value.n)
        return Rec(value.n + 3, value.key)
