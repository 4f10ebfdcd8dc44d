"""The code of the page about RabbitMQ runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.rabbitmq.server import PROJECT, Rabbit
from tests.docs.snippets import WITH_RABBITMQ, run, snippets


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WITH_RABBITMQ))
def test_the_code_of_the_page_runs(
    name: str, rabbit: Rabbit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RABBITMQ", rabbit.url)
    path = PROJECT / name

    run(snippets(path.read_text("utf-8")), path)
