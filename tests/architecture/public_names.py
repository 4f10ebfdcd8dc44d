"""The public names of the project. ``make public-names`` rewrites the list after an intended change."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final

from tests.architecture.rooms import FRONT_DOOR

LIST: Final = Path(__file__).with_name("public_names.txt")
DOORS: Final = (
    "aflow",
    *(f"aflow.{group}" for group in sorted(FRONT_DOOR)),
    "aflow.bench",
    "aflow.connect",
    "aflow.errors",
    "aflow.telemetry",
    "aflow.testing",
    "aflow.web",
)


def public_names() -> list[str]:
    """All that the public modules promise, sorted, with the module in front."""
    return [f"{door}:{name}" for door in DOORS for name in sorted(promised(door))]


def promised(door: str) -> list[str]:
    """``__all__`` of a public module; one without promises nothing."""
    names: list[str] = getattr(import_module(door), "__all__", [])
    return names


def listed_names() -> list[str]:
    return LIST.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in public_names()), encoding="utf-8")
