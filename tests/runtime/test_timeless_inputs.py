"""An input that has no event time does not stop that of the other one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import aflow as af
from aflow.testing import CollectSink, Pause, ScriptedSource, run_flow

MINUTE = timedelta(minutes=1)


class Reminders(af.BroadcastProcess[str, int, str, str]):
    """Sets a timer a second of event time after each record."""

    words = af.BroadcastState("words", key=str, of=bool)

    def process(self, value: int, ctx: af.BroadcastContext[str]) -> Iterable[str] | None:
        ctx.set_event_timer(value + 1_000)
        return None

    def on_timer(self, at: int, ctx: af.BroadcastContext[str]) -> Iterable[str]:
        yield f"{at} {ctx.state(self.words).keys()}"

    def process_broadcast(self, value: str, ctx: af.ControlContext) -> Iterable[str] | None:
        ctx.state(self.words).put(value, True)
        return None


def test_timers_ring_while_a_control_stream_without_event_time_is_open() -> None:
    flow, rung = af.Flow("control"), CollectSink[str]()
    script = ScriptedSource[int](Pause(MINUTE), 5, 3_000, Pause(MINUTE), 9_000)
    control = ScriptedSource[str]("first", Pause(MINUTE * 1.5), "second", Pause(MINUTE * 10))
    numbers = flow.source(script).event_time(lambda n: n)
    (
        numbers.key_by(lambda _: "key")
        .connect_broadcast(flow.source(control))
        .process(Reminders(), name="reminders")
        .to(rung)
    )

    run_flow(flow, parallelism=2)

    assert rung.values == [
        "1005 ['first']",
        "4000 ['first', 'second']",
        "10000 ['first', 'second']",
    ]


def test_two_inputs_without_event_time_run_as_ever() -> None:
    flow, rung = af.Flow("neither"), CollectSink[str]()
    control = flow.source(ScriptedSource[str]("only"))
    (
        flow.source(ScriptedSource[int](5))
        .key_by(lambda _: "key")
        .connect_broadcast(control)
        .process(Reminders(), name="reminders")
        .to(rung)
    )

    run_flow(flow)

    assert rung.values == ["1005 ['only']"], "the end of time rings what is left"
