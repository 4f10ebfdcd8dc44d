"""The examples of the page run, against a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.postgres.conftest import Database
from tests.docs.snippets import run_document


@pytest.mark.slow
def test_what_the_page_shows_runs(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", database.address)

    run_document("docs/connectors/postgres.md")
