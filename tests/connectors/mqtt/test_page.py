"""The code of the page about MQTT runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.mqtt.server import PROJECT, Mqtt
from tests.docs.snippets import WITH_MQTT, run, snippets


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WITH_MQTT))
def test_the_code_of_the_page_runs(
    name: str, mqtt: Mqtt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MQTT", mqtt.url)
    path = PROJECT / name

    run(snippets(path.read_text("utf-8")), path)
