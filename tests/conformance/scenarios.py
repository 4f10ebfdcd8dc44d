"""The scenarios, as read from the data; and which of them are not expected to pass, as read from DEVIATIONS.md."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeAlias

Json: TypeAlias = Mapping[str, Any]

HERE: Final = Path(__file__).parent
OWN_DATA: Final = HERE / "data"

#: The data to run: our own, or that of the folder in the environment variable `AFLOW_CONFORMANCE`.
DATA: Final = Path(os.environ.get("AFLOW_CONFORMANCE") or OWN_DATA)

_KEYS: Final = {"id", "source", "given", "steps", "expect", "implied", "note"}


class UnknownWord(Exception):
    """A scenario has a word that this runner does not understand. It fails: an unchecked fact does not pass."""


@dataclass(frozen=True)
class Scenario:
    """One object of the data; data/README.md describes the parts."""

    area: str
    id: str
    given: Json = field(repr=False)
    steps: Sequence[Json] = field(repr=False)
    expect: Json = field(repr=False)
    implied: Json = field(repr=False)
    unknown: Sequence[str] = field(repr=False)
    """Keys that the description of the format does not have."""

    @property
    def name(self) -> str:
        """The name of its test."""
        return f"{self.area}/{self.id}"


@dataclass(frozen=True)
class Exemption:
    """A row of DEVIATIONS.md: ``pattern`` is the name of a scenario, or of several with ``*``."""

    pattern: str
    reason: str

    def covers(self, name: str) -> bool:
        """True if the row is about the scenario (or area) of this name."""
        return fnmatchcase(name, self.pattern)


@dataclass(frozen=True)
class Exemptions:
    """The three tables of DEVIATIONS.md."""

    deviations: Sequence[Exemption]
    """Scenarios that the design rules out. They are not run."""
    not_yet: Sequence[Exemption]
    """Scenarios of a later change. They are run and have to fail: one that passes must leave the table."""
    later_areas: Sequence[Exemption]
    """Files of the data that no driver reads yet."""


def read_scenarios(folder: Path) -> list[Scenario]:
    """All scenarios of ``folder``, file by file. Raises ``ValueError`` if there are none, or an id is there twice."""
    scenarios = [
        _scenario(path.stem, each)
        for path in sorted(folder.glob("*.json"))
        for each in json.loads(path.read_text("utf-8"))
    ]
    names = [scenario.name for scenario in scenarios]
    twice = {name for name in names if names.count(name) > 1}
    if twice or not names:
        raise ValueError(f"{folder} has {f'{sorted(twice)} twice' if twice else 'no scenarios'}")
    return scenarios


def read_exemptions(text: str) -> Exemptions:
    """The tables below the headings ``Deviations``, ``Not yet`` and ``Areas not yet built``."""
    tables = {
        heading.strip().lower(): list(_rows(body))
        for heading, body in re.findall(
            r"^## (.+?)$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
        )
    }
    return Exemptions(tables["deviations"], tables["not yet"], tables["areas not yet built"])


def _rows(text: str) -> Iterator[Exemption]:
    for pattern, reason in re.findall(r"^\| `([^`]+)` \| (.+?) \|$", text, re.MULTILINE):
        yield Exemption(pattern, reason)


def _scenario(area: str, each: Json) -> Scenario:
    return Scenario(
        area,
        each["id"],
        each.get("given", {}),
        each["steps"],
        each.get("expect", {}),
        each.get("implied", {}),
        sorted(each.keys() - _KEYS),
    )
