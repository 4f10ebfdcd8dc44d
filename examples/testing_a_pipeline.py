"""Test a pipeline in virtual time: the same ``build`` as in production, with a scripted source.

``build`` takes its sources and sinks as arguments, so a test can pass others. The virtual clock advances to the next
timer as soon as the job is idle: three hours take milliseconds. pytest runs the function as a test without changes.

Prints:

    tested three hours
"""

from collections.abc import Iterable
from datetime import timedelta

import aflow as af
from aflow.testing import Pause, ScriptedSource, run_flow

HOUR = timedelta(hours=1)


class Silence(af.KeyedProcess[str, str, str]):
    """Emit an alarm if a sensor sends no reading for an hour."""

    deadline = af.ValueState("deadline", of=int)

    def process(self, value: str, ctx: af.Context[str]) -> None:
        deadline = ctx.state(self.deadline)
        before = deadline.get()
        if before is not None:
            ctx.delete_processing_timer(before)
        due = ctx.processing_time + HOUR // timedelta(milliseconds=1)
        ctx.set_processing_timer(due)
        deadline.set(due)

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[str]:
        ctx.state(self.deadline).clear()
        return [f"{ctx.key} is silent"]


def build(readings: af.Source[str], alarms: af.Sink[str]) -> af.Flow:
    flow = af.Flow("silent sensors")
    per_sensor = flow.source(readings, name="readings").key_by(lambda sensor: sensor)
    per_sensor.process(Silence(), name="silence").to(alarms, name="alarms")
    return flow


def test_a_sensor_is_reported_when_it_was_silent_for_an_hour() -> None:
    script = ScriptedSource[str]("cellar", "roof", Pause(HOUR / 2), "roof", Pause(HOUR * 2.5))
    alarms = af.CollectSink[str]()

    outcome = run_flow(build(script, alarms))

    assert alarms.values == ["cellar is silent", "roof is silent"]
    assert outcome.took == 3 * HOUR


if __name__ == "__main__":
    test_a_sensor_is_reported_when_it_was_silent_for_an_hour()
    print("tested three hours")
