"""The examples of the page run, against a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.postgres.conftest import Database
from tests.docs.snippets import WITH_POSTGRES, run, snippets

PROJECT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WITH_POSTGRES))
def test_what_the_page_shows_runs(
    name: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", database.address)
    path = PROJECT / name

    run(snippets(path.read_text(encoding="utf-8")), path)
