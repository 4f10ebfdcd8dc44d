"""Drivers of the areas of scenarios."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.conformance.driver import Driver, call
from tests.conformance.drivers.async_chain import Chain, RetryStrategy
from tests.conformance.drivers.async_wait import Operator, Queue
from tests.conformance.drivers.barriers import BarrierHandler
from tests.conformance.drivers.checkpoint_coordinator import (
    Completed,
    Decider,
    Failures,
    WholeCoordinator,
)
from tests.conformance.drivers.evictors import Evictors
from tests.conformance.drivers.interval_join import IntervalJoin
from tests.conformance.drivers.mailbox import MailboxOrder
from tests.conformance.drivers.merging_window_set import MergingWindows
from tests.conformance.drivers.processor import Processor
from tests.conformance.drivers.restart_strategies import RestartStrategies
from tests.conformance.drivers.source_alignment import Alignment
from tests.conformance.drivers.timers import Timers
from tests.conformance.drivers.watermarks import Generator, IdlenessTimer, Multiplexer, Valve
from tests.conformance.drivers.window_assigners import WindowAssigners
from tests.conformance.drivers.window_operator import WindowOperators
from tests.conformance.drivers.window_operator_contract import WindowOperatorContract
from tests.conformance.drivers.window_triggers import window_triggers
from tests.conformance.scenarios import Scenario, UnknownWord

#: By area, and within it by ``given.kind``; the empty kind is for scenarios that name none.
AREAS: Final[Mapping[str, Mapping[str, Callable[..., Driver]]]] = {
    "async_wait": {
        "operator": Operator,
        "operator_chain": Chain,
        "queue": Queue,
        "retry_strategy": RetryStrategy,
    },
    "barriers": {"": BarrierHandler},
    "checkpoint_coordinator": {
        "completed_store": Completed,
        "coordinator": WholeCoordinator,
        "failure_manager": Failures,
        "request_decider": Decider,
    },
    "evictors": {"": Evictors},
    "interval_join": {"": IntervalJoin},
    "mailbox": {"mailbox": MailboxOrder, "executor": Processor, "processor": Processor},
    "merging_window_set": {"": MergingWindows},
    "restart_strategies": {"": RestartStrategies},
    "timers": {"": Timers},
    "watermarks": {
        "": IdlenessTimer,
        "generator": Generator,
        "idleness_timer": IdlenessTimer,
        "multiplexer": Multiplexer,
        "source_alignment": Alignment,
        "valve": Valve,
    },
    "window_assigners": {"": WindowAssigners},
    "window_operator": {"": WindowOperators},
    "window_operator_contract": {"": WindowOperatorContract},
    "window_triggers": {"": window_triggers},
}


def driver_for(scenario: Scenario) -> Driver:
    """Return a new driver with the arguments of the scenario. Raises ``UnknownWord`` if there is none for it."""
    given = dict(scenario.given)
    kind = given.pop("kind", "")
    make = AREAS.get(scenario.area, {}).get(kind)
    if make is None:
        raise UnknownWord(f"no driver for {scenario.area!r}, kind {kind!r}")
    driver: Driver = call(make, given)
    return driver
