"""The code of the page about Kafka runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.kafka.broker import Cluster
from tests.docs.snippets import run_document


@pytest.mark.slow
def test_the_code_of_a_document_about_kafka_runs(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA", kafka.servers)

    run_document("docs/connectors/kafka.md")
