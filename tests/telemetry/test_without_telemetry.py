"""A job without telemetry does no work for it, and one that traces none of its records does none for each record."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final

import aflow as af
from aflow.model.distribution import install_command
from aflow.testing.virtual_time import virtual_time
from tests.telemetry.tracing import TracedProgram

#: The folder of the package: a checkout may have its name.
_PACKAGE: Final = f"{Path(af.__file__).parent}/"

#: Hides OpenTelemetry, then imports what needs it.
_WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
import aflow
try:
    import aflow.telemetry
except ImportError as error:
    print(error)
"""


def test_the_error_without_the_package_names_the_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == (
        f"aflow.telemetry needs opentelemetry-api, which is in the extra 'otel': {install_command('otel')}"
    )


async def calls_of(options: af.Options, records: int) -> Counter[str]:
    """Send records one by one through maps and calls, and count the functions of aflow that run, by name."""
    counted: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename.removeprefix(_PACKAGE)
        if event == "call" and file != frame.f_code.co_filename and "testing/" not in file:
            counted[f"{file}:{frame.f_code.co_name}"] += 1

    async def echo(number: int) -> int:
        return number

    source = af.PushSource[int](capacity=10 * records)
    flow = af.Flow("numbers")
    mapped = flow.source(source, name="numbers").map(lambda number: number + 1, name="more")
    mapped.map_async(echo, capacity=4, name="echo").to(af.CollectSink[int](), name="out")
    async with flow.start(options=options) as job:
        sys.setprofile(count)
        try:
            for number in range(records):
                await source.send(number)
            await job.stop()
        finally:
            sys.setprofile(None)
    return counted


@virtual_time
async def test_without_telemetry_no_code_for_traces_runs_for_a_record() -> None:
    few, many = await calls_of(af.Options(), 100), await calls_of(af.Options(), 1_000)

    assert not [name for name in many if name.startswith("telemetry/")]
    # For each record: send and its queue, and nothing else. All that processes records works on batches.
    growing = {name for name in many if many[name] - few[name] >= 900}
    assert growing == {
        "runtime/builtin_connectors/push_source.py:_put",
        "runtime/builtin_connectors/push_source.py:_record",
        "runtime/builtin_connectors/push_source.py:_wake_reader",
        "runtime/builtin_connectors/push_source.py:has_room",
        "runtime/builtin_connectors/push_source.py:send",
    }


@virtual_time
async def test_calls_of_records_that_are_not_traced_run_one_function_more() -> None:
    program = TracedProgram(records_per_second=0)
    without = await calls_of(af.Options(), 1_000)
    with_telemetry = await calls_of(program.options, 1_000)

    more = with_telemetry - without
    growing = {name for name in more if more[name] >= 900}
    assert growing == {
        "operators/calls/followed_calls.py:invoke",
        "runtime/builtin_connectors/push_source.py:_correlation",
        "runtime/builtin_connectors/push_source.py:_put_followed",
        "runtime/builtin_connectors/push_source.py:_put_traced",
        "runtime/calls/slots.py:_followed_plain",
        "telemetry/guard.py:suppressed",
        "telemetry/record_spans.py:sent",
    }
