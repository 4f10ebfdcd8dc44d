"""The service in a process of its own, which ends with the process that started it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import msgspec
import pytest

import aflow as af
from flights.lookups.capacity import Capacities
from flights.lookups.faults import faultless
from flights.lookups.service import Counts
from flights.lookups.service_process import Settings, service_process

HEADER = "origin,time_hour,wind_speed,wind_gust,precip,visib"
ROW = "JFK,2013-01-01T10:00:00Z,12.5,NA,0,10"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "JFK.csv").write_text(f"{HEADER}\n{ROW}\n")
    return Settings(
        weather=str(tmp_path), faults=faultless(), capacities=Capacities(phase=10, each=(8,))
    )


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_the_service_answers_from_its_files_and_counts(settings: Settings) -> None:
    with service_process(settings) as service:
        with urlopen(f"{service.url}/weather?origin=JFK&at=2013-01-01T10:59:00Z") as answer:
            response = answer.read()

        assert response == (
            b'{"origin":"JFK","time_hour":"2013-01-01T10:00:00+00:00","wind_speed":12.5,'
            b'"wind_gust":null,"precip":0.0,"visib":10.0}'
        )
        assert service.counts() == Counts(asked=1, answered=1, capacity=8)


@pytest.mark.slow
def test_the_service_ends_with_the_block(settings: Settings) -> None:
    with service_process(settings) as service:
        assert is_there(service.process)

    assert not is_there(service.process)


@pytest.mark.slow
@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt], ids=["error", "Ctrl-C"])
def test_the_service_ends_when_the_block_fails(
    settings: Settings, failure: type[BaseException]
) -> None:
    seen: list[int] = []

    def fails() -> None:
        with service_process(settings) as service:
            seen.append(service.process)
            raise failure

    with pytest.raises(failure):
        fails()

    (process,) = seen
    assert not is_there(process)


@pytest.mark.slow
def test_the_service_ends_when_its_parent_is_killed(settings: Settings) -> None:
    script = (
        "import msgspec, sys\n"
        "from flights.lookups.service_process import Settings, service_process\n"
        "with service_process(msgspec.json.decode(sys.argv[1], type=Settings)) as service:\n"
        "    print(service.process, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, msgspec.json.encode(settings).decode()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        service = int(parent.stdout.readline())
        watched = os.pidfd_open(service)  # readable once the service has ended

        parent.send_signal(signal.SIGKILL)

    ended = wait_readable(watched)
    os.close(watched)
    assert ended


def wait_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 60)[0])


@pytest.mark.slow
def test_a_service_that_does_not_start_says_why(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "JFK.csv").write_bytes(b"\xff\xfe\n")

    with (
        pytest.raises(af.errors.SourceError, match=r"did not start:[\s\S]*UnicodeDecodeError"),
        service_process(settings),
    ):
        pytest.fail("it has started")
