"""The code of the page about Kafka runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.kafka.broker import PROJECT, Cluster
from tests.docs.snippets import WITH_KAFKA, run, snippets


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WITH_KAFKA))
def test_the_code_of_a_document_about_kafka_runs(
    name: str, kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA", kafka.servers)
    path = PROJECT / name

    run(snippets(path.read_text("utf-8")), path)
