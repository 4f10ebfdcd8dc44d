"""The examples of the page run, against a server."""

from __future__ import annotations

from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.connectors.s3.server import S3Server
from tests.docs.snippets import run_document


@pytest.mark.slow
def test_what_the_page_shows_runs(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for setting, value in s3.client.items():
        monkeypatch.setenv(f"AWS_{setting.upper()}", str(value))
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with urlopen(Request(f"{s3.endpoint}/shop", method="PUT"), timeout=60):
        pass

    run_document("docs/connectors/s3.md")
