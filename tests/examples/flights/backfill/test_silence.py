"""Aircraft without flights for a week, in any order of arrival."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aflow as af
from aflow.testing.virtual_time import VirtualClock, run
from flights.backfill.registry import open_registry
from flights.backfill.silence import (
    SILENCE,
    Grounded,
    Silent,
    grounded_aircraft,
    silent_aircraft,
)
from flights.flight import Flight
from flights.pipeline import LONGEST_DELAY
from tests.examples.flights.samples import flight

PLANES = "tailnum,manufacturer,model,seats\nN1,BOEING,737,100\nN2,AIRBUS,A320,150\n"
WEEK = SILENCE // timedelta(minutes=1)


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("registry") / "planes.csv"
    path.write_text(PLANES)
    return path


def found(flights: list[Flight], planes: Path) -> tuple[list[Silent], list[Grounded]]:
    """Return the results for ``flights`` in the order of departure."""
    in_order = sorted(
        flights, key=lambda one: one.scheduled + timedelta(minutes=one.dep_delay or 0)
    )
    silent, grounded = af.CollectSink[Silent](), af.CollectSink[Grounded]()
    flow = af.Flow("silence")
    every = flow.source(in_order, name="flights").event_time(
        lambda one: one.scheduled, max_delay=LONGEST_DELAY
    )
    away = silent_aircraft(every, planes)
    away.to(silent, name="silent")
    grounded_aircraft(away).to(grounded, name="grounded")
    run(flow.run())
    return silent.values, grounded.values


def departs(minute: int, tail: str, delay: int | None = 0) -> Flight:
    """Return a flight ``minute`` minutes after the beginning of March."""
    first = flight("03-01T00:00", 0).scheduled
    return flight(f"{first + timedelta(minutes=minute):%m-%dT%H:%M}", delay, tail=tail)


def test_an_aircraft_is_silent_after_more_than_a_week_without_a_leg(planes: Path) -> None:
    flights = [departs(at, "N1") for at in (0, WEEK, 2 * WEEK + 1)]

    silent, _ = found(flights, planes)

    since = [one.since for one in silent]
    assert since == [flights[1].scheduled, flights[2].scheduled]


def test_silent_aircraft_have_their_kinds_from_the_registry(planes: Path) -> None:
    silent, grounded = found([departs(0, "N1"), departs(1, "N2"), departs(2, "N3")], planes)

    assert sorted((one.tail, one.maker, one.model, one.seats) for one in silent) == [
        ("N1", "BOEING", "737", 100),
        ("N2", "AIRBUS", "A320", 150),
        ("N3", "unknown", "unknown", 0),
    ]
    assert sorted((one.maker, one.aircraft, one.seats) for one in grounded) == [
        ("AIRBUS", 1, 150),
        ("BOEING", 1, 100),
        ("unknown", 1, 0),
    ]


legs = st.lists(
    st.tuples(
        st.integers(0, 4 * WEEK),
        st.sampled_from(["N1", "N2"]),
        st.none() | st.integers(-40, 1300),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60)
@given(drawn=legs)
def test_the_order_of_arrival_has_no_effect(
    drawn: list[tuple[int, str, int | None]], planes: Path
) -> None:
    moments: dict[str, set[int]] = {}
    for at, tail, _ in drawn:
        moments.setdefault(tail, set()).add(at)
    silent_by_hand = sorted(
        (tail, at)
        for tail, legs_of in moments.items()
        for at in legs_of
        if not any(at < other <= at + WEEK for other in legs_of)
    )

    silent, _ = found([departs(*one) for one in drawn], planes)

    first = flight("03-01T00:00", 0).scheduled
    minutes = [(one.tail, (one.since - first) // timedelta(minutes=1)) for one in silent]
    assert sorted(minutes) == silent_by_hand


def test_the_latency_of_the_registry_is_constant_for_a_tail_number(planes: Path) -> None:
    async def asked() -> list[int]:
        clock, took = VirtualClock(), list[int]()
        async with open_registry(planes) as registry:
            for tail in ("N1", "N1", "N2"):
                began = clock.now()
                await registry.kind(tail)
                took.append(clock.now() - began)
        return took

    took = run(asked())

    assert took[0] == took[1]
    assert all(1 <= one <= 5 for one in took)
