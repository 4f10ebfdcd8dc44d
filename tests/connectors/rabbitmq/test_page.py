"""The code of the page about RabbitMQ runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.rabbitmq.server import Rabbit
from tests.docs.snippets import run_document


@pytest.mark.slow
def test_the_code_of_the_page_runs(
    rabbit: Rabbit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RABBITMQ", rabbit.url)

    run_document("docs/connectors/rabbitmq.md")
