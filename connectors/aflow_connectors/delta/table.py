"""A Delta table, as source and sink use it. All calls block: they are for worker threads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.optional import load
from aflow_connectors.secret_texts import secrets_of, without_secrets


def deltalake(owner: str) -> ModuleType:
    """Import ``deltalake``. Raises ``ConnectorError``."""
    return load("deltalake", package="deltalake", extra="lake", purpose=owner)


class TableLocation:
    """The location of a table: a path or URL, and the settings of its object store.

    Raises ``FlowDefinitionError`` for invalid arguments.
    """

    def __init__(self, owner: str, url: object, client: Mapping[str, str] | None) -> None:
        text = str(url) if isinstance(url, (str, Path)) else ""
        if not text:
            raise FlowDefinitionError(
                f"{owner}: the table must be a path or a URL like 's3://bucket/table', not {shown(url)}"
            )
        if "@" in text.partition("://")[2].partition("/")[0] and not text.startswith("abfs"):
            raise FlowDefinitionError(
                f"{owner}: the URL must have no credentials; client= takes them"
            )
        self.owner: Final = owner
        self.url: Final = text
        self._options: Final = None if client is None else dict(client)
        self._secrets: Final = secrets_of(client)

    @property
    def settings(self) -> dict[str, str]:
        return self._options or {}

    def exists(self) -> bool:
        """Return True if there is a table."""
        table = deltalake(self.owner).DeltaTable
        return bool(table.is_deltatable(self.url, storage_options=self._options))

    def opened(self, version: int | None = None) -> Any:
        """Return the ``DeltaTable``, at its newest or at another version."""
        table = deltalake(self.owner).DeltaTable
        return table(self.url, version=version, storage_options=self._options)

    def create(self, schema: Any) -> None:
        """Create the table, unless it exists."""
        deltalake(self.owner).DeltaTable.create(
            self.url, schema=schema, mode="ignore", storage_options=self._options
        )

    def files(self) -> Any:
        """Return the folder of the table as a file system of pyarrow."""
        handlers = load("deltalake.fs", package="deltalake", extra="lake", purpose=self.owner)
        arrow = load("pyarrow.fs", package="pyarrow", extra="lake", purpose=self.owner)
        return arrow.PyFileSystem(handlers.DeltaStorageHandler(self.url, self.settings))

    def reason(self, exc: BaseException) -> str:
        """Return the first line of an error of the client, without secrets."""
        text = str(exc).strip().partition("\n")[0][:400] or type(exc).__name__
        return without_secrets(text, self._secrets)
