"""No step's results depend on how many records are processed at once, or on whether steps are chained."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from random import Random
from typing import Any, Final

import pytest

import aflow as af
import aflow.api
from aflow.testing import run_flow
from tests.backfill.items import Item, at_of, millis
from tests.runtime.batch_cases import CASES, EXEMPT, WINDOWS, Case, SoonAfter, Told, windowed

#: Records in a batch, and whether steps are chained. The first run is compared with the others.
RUNS: Final = ((1_024, True), (1, True), (7, True), (7, False))

#: Triggers of processing time, which do not depend on batches; and names that are no trigger.
BY_THE_CLOCK: Final = {"ProcessingTime", "ContinuousProcessingTime"}
NO_TRIGGERS: Final = {"MergeContext", "Trigger", "TriggerContext", "TriggerResult"}
NO_EVICTORS: Final = {"Element", "Evictor", "EvictorContext"}

TRIGGERS: Final[dict[str, Any]] = {
    "EventTime": af.triggers.EventTime(
        early=af.triggers.Count(2), late=af.triggers.Purging(af.triggers.Count(1))
    ),
    "ContinuousEventTime": af.triggers.ContinuousEventTime(millis(8)),
    "Count": af.triggers.Count(2),
    "Delta": af.triggers.Delta[Item](300.0, lambda one, other: abs(one.n - other.n)),
    "Never": af.triggers.Never(),
    "Purging": af.triggers.Purging(af.triggers.Count(3)),
}
EVICTORS: Final[dict[str, Any]] = {
    "Count": af.evictors.Count(2),
    "Time": af.evictors.Time(millis(9)),
    "Delta": af.evictors.Delta[Item](300.0, lambda one, newest: abs(one.n - newest.n)),
}


def items_of(case: Case) -> list[Item]:
    """Items; unless they are to be in the order of time, some of them out of order or late.

    There are several at some times, and some exactly at the end of a session.
    """
    random = Random(7)
    jumbled = 0 if case.in_time else 60
    moments = [at for at in range(120) for _ in range(2) if random.random() < 0.4]
    moments.sort(key=lambda at: at + random.randint(0, jumbled))
    return [Item(random.randrange(3), random.randrange(1_000), at) for at in moments]


def results_of(case: Case, *, batch: int, chaining: bool, told: bool = False) -> list[Any]:
    """With ``told``, the results of timers downstream of each output of the step."""
    flow, sink = af.Flow("batches"), af.CollectSink[Any]()
    items = flow.source(items_of(case), name="items").event_time(
        at_of, max_delay=millis(0 if case.in_time else 20)
    )
    results = case.build(items)
    if told:
        for number, output in enumerate(outputs_of(results)):
            keyed_by_value = output.key_by(repr).process(Told(), name=f"told {number}")
            keyed_by_value.to(sink, name=f"out {number}")
        results.to(af.CollectSink[Any](), name="unread")
    else:
        results.to(sink, name="out")
    run_flow(flow, options=af.Options(batch_records=batch, chaining=chaining))
    return sink.values if case.ordered and not told else sorted(sink.values, key=repr)


def outputs_of(results: af.Stream[Any]) -> list[af.Stream[Any]]:
    """Return the inputs of the union in which a case has mixed them in no particular order."""
    last = results.step_input.edge
    if last.origin.what != "union":
        return [results]
    graph = results.step_input.graph
    return [af.Stream[Any](graph, edge) for edge in last.origin.inputs]


def check(case: Case, *, told: bool = False) -> None:
    found = {
        (batch, chaining): results_of(case, batch=batch, chaining=chaining, told=told)
        for batch, chaining in RUNS
    }
    expected = found[RUNS[0]]

    assert expected, "the pipeline has no results, so nothing is compared"
    for how, results in found.items():
        assert results == expected, f"batch_records and chaining: {how}"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{name} {number}")
        for name, cases in CASES.items()
        for number, case in enumerate(cases)
    ],
)
def test_the_results_of_a_step_are_the_same_for_all_batch_sizes(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{name} {number}")
        for name, cases in CASES.items()
        for number, case in enumerate(cases)
        if not case.mixed
    ],
)
def test_timers_downstream_of_a_step_are_the_same_for_all_batch_sizes(case: Case) -> None:
    check(case, told=True)


def _triggered() -> Iterator[Any]:
    for name, trigger in TRIGGERS.items():
        for kind, windows in WINDOWS.items():
            merging = kind in ("session", "dynamic session")
            if name == "Never" or isinstance(windows, af.Count) or (merging and name == "Delta"):
                continue  # emits nothing; has its own trigger; refused
            yield pytest.param(windows, trigger, id=f"{name} {kind}")


@pytest.mark.parametrize(("windows", "trigger"), list(_triggered()))
def test_the_firings_of_a_trigger_are_the_same_for_all_batch_sizes(
    windows: Any, trigger: Any
) -> None:
    check(Case(windowed(windows, trigger=trigger), ordered=False))
    check(Case(windowed(windows, trigger=trigger), ordered=False), told=True)


@pytest.mark.parametrize(
    "windows", [af.Global(), af.Tumbling(millis(30)), af.Sliding(millis(60), millis(20))], ids=str
)
def test_event_timers_of_a_trigger_are_the_same_for_all_batch_sizes(windows: Any) -> None:
    check(Case(windowed(windows, trigger=SoonAfter()), ordered=False))
    check(Case(windowed(windows, trigger=SoonAfter()), ordered=False), told=True)


@pytest.mark.parametrize("evictor", EVICTORS)
def test_evictors_drop_the_same_records_for_all_batch_sizes(evictor: str) -> None:
    check(
        Case(windowed(af.Sliding(millis(60), millis(20)), evictor=EVICTORS[evictor]), ordered=False)
    )


def public_methods() -> set[str]:
    """Of the classes by which users build pipelines, with the class that defines each."""
    modules = [
        import_module(f"aflow.api.{found.name}")
        for found in pkgutil.iter_modules(aflow.api.__path__)
    ]
    classes = {
        kind
        for module in modules
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__.startswith("aflow.api")
        and name.endswith(("Stream", "Streams", "Results"))
    }
    names = {
        f"{kind.__name__}.{name}"
        for kind in classes
        for name in dir(kind)
        if not name.startswith("_") and not _inherited(kind, name)
    }
    assert {"Stream.map", "KeyedStream.fold", "WindowedStream.apply"} <= names
    return names


def _inherited(kind: type[Any], name: str) -> bool:
    """True if a public stream class above ``kind`` has it, which has a case for it then."""
    return any(
        hasattr(base, name) and base.__name__.endswith("Stream") for base in kind.__mro__[1:]
    )


def test_every_public_step_has_a_case_here_or_a_reason() -> None:
    known = CASES.keys() | EXEMPT.keys()

    assert public_methods() == known
    assert not CASES.keys() & EXEMPT.keys()


def test_every_trigger_and_evictor_has_a_case_here_or_a_reason() -> None:
    triggers, evictors = set(af.triggers.__all__), set(af.evictors.__all__)

    assert triggers == TRIGGERS.keys() | BY_THE_CLOCK | NO_TRIGGERS
    assert evictors == EVICTORS.keys() | NO_EVICTORS
