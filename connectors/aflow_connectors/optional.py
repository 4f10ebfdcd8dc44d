"""Optional packages that connectors need."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from aflow.connect import ConnectorError
from aflow.model.distribution import install_command


def load(module: str, *, package: str, extra: str, purpose: str) -> ModuleType:
    """Import ``module`` of ``package``. Raises ``ConnectorError`` with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as exc:
        raise ConnectorError(
            f"{purpose} needs the package {package}, which cannot be imported ({exc}): "
            + install_command(extra)
        ) from exc
