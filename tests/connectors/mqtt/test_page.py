"""The code of the page about MQTT runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.mqtt.server import Mqtt
from tests.docs.snippets import run_document


@pytest.mark.slow
def test_the_code_of_the_page_runs(
    mqtt: Mqtt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MQTT", mqtt.url)

    run_document("docs/connectors/mqtt.md")
