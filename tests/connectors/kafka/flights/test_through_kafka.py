"""The replay of flights through Kafka and PostgreSQL, killed on its way, has the results of one through files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from flights.files import Files
from flights.replay import Replay, run_replay
from flights.tables import days_of, hours_of
from flights.through.servers import Servers
from tests.connectors.kafka.broker import Cluster
from tests.connectors.postgres.conftest import Database
from tests.examples.flights.test_crash import results

RECORDS = 2000


@pytest.mark.slow
@pytest.mark.usefixtures("first_flights")
def test_a_replay_that_is_killed_between_servers_has_the_results_of_one_through_files(
    tmp_path: Path, kafka: Cluster, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    files = Files(tmp_path / "files")
    assert run_replay(Replay(output=files.folder, records=RECORDS)) == 0
    tables = capsys.readouterr().out
    servers = Servers(kafka.servers, database.address)

    status = run_replay(
        Replay(
            output=tmp_path / "through",
            records=RECORDS,
            kill_after=timedelta(seconds=2.5),
            through=servers,
        )
    )

    assert status == 0
    assert sorted(servers.hours(), key=repr) == sorted(hours_of(files), key=repr)
    assert sorted(servers.days(), key=repr) == sorted(days_of(files), key=repr)
    others = results(files.folder)
    del others["hourly"], others["daily"]
    assert results(tmp_path / "through") == others
    shown = capsys.readouterr().out
    assert "Newark Liberty Intl" in shown
    worst = tables.index("The worst hours")
    assert tables[worst : tables.index("2,000 flights read")] in shown


def test_a_server_that_is_not_there_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    servers = Servers("127.0.0.1:1", "postgresql://reader:secret@127.0.0.1:1/none")

    with pytest.raises(af.errors.SinkError, match="--postgres names another database") as refused:
        servers.publish(Files(tmp_path))

    assert "secret" not in str(refused.value)
