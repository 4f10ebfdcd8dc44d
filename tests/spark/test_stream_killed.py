"""A stream whose driver and Python workers are killed with SIGKILL has the output and the state of one without kills.

The short form of ``python -m bench crash --only stream stream-workers``. Each kill waits for its moment, so nothing
here depends on how long anything takes. All but the last kill of a driver leave the JVM, which goes on with its tasks,
and which the next driver uses.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from bench.crash.outputs import differences
from bench.crash.stream.faults import Fault, TaskFaults, counted_faults, write_faults
from bench.crash.stream.moments import Moment, StreamKill, Victim
from bench.crash.stream.pipeline import end_of, input_files
from bench.crash.stream.program import StreamSettings, query_of
from bench.crash.stream.results import live_rest, live_whole, stream_leftovers, whole_output
from bench.crash.stream.rounds import Jvms, Starts
from tests.long_tests import LONG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.slow,
    LONG,
]

FILES = 10
FAULTS = TaskFaults(seed="21", shares={Fault.WORKER: 0.2}, longest=0.1)
KILLS = [
    # While tasks run: they go on.
    StreamKill(Victim.PYTHON, Moment.PART),
    StreamKill(Victim.PYTHON, Moment.GATE, gate="PREPARED"),
    StreamKill(Victim.PYTHON, Moment.GATE, gate="COMMITTED"),
    # The first call skips the batch of the epoch that was committed.
    StreamKill(Victim.PYTHON, Moment.GATE, gate="BEFORE_SPARK", nth=2),
    StreamKill(Victim.DRIVER, Moment.GATE, gate="CALLED"),
]


async def test_a_killed_stream_and_the_live_job_after_it_equal_one_live_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = [one for some in input_files(FILES) for one in some]
    whole = await live_whole(records)
    write_faults(tmp_path, FAULTS)
    settings = StreamSettings(
        folder=str(tmp_path),
        until=end_of(FILES),
        files=FILES,
        spark={"spark.master": "local[2,4]"},
    )
    jvms = Jvms(tmp_path)
    starts = Starts(settings, FILES, Random(21), jvms)
    try:
        for kill in KILLS:
            starts.start(kill)
    finally:
        jvms.close()
    starts.arrive(FILES)

    done = await query_of(settings, spark).wait()

    assert [one.killed and one.reached for one in starts.attempts] == [True] * len(KILLS)
    assert jvms.started == 1
    assert any(fault.startswith(Fault.WORKER.name) for fault in counted_faults(tmp_path))
    assert done.savepoint == tmp_path / "savepoint"
    assert stream_leftovers(tmp_path) == []
    rest = await live_rest(tmp_path, records)
    assert differences(whole, whole_output(tmp_path, rest)) == []
