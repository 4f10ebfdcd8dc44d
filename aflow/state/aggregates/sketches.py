"""Import of the optional package of the approximate aggregates."""

from __future__ import annotations

from typing import Any, cast

from aflow.errors import FlowDefinitionError
from aflow.model.distribution import install_command


def datasketches(what: str) -> Any:
    """Return the module of Apache DataSketches. Raises ``FlowDefinitionError`` with the command that installs it."""
    try:
        import datasketches as module
    except ImportError as exc:
        raise FlowDefinitionError(
            f"{what} needs the package datasketches, which cannot be imported ({exc}): "
            f"{install_command('sketch')}; it is available for Python 3.11 to 3.13"
        ) from exc
    return cast("Any", module)  # it has no type annotations
