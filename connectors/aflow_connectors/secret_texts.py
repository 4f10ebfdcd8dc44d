"""Removal of credentials from the texts of errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, cast

#: Names of settings that hold credentials.
_NAME: Final = re.compile(r"key|secret|token|password|sas|credential|account", re.IGNORECASE)
#: Characters of the shortest text that is removed; shorter ones occur in other words.
_SHORTEST: Final = 4


def secrets_of(settings: object) -> set[str]:
    """Return the texts of all credentials in the settings of a client."""
    if not isinstance(settings, Mapping):
        return set()
    found: set[str] = set()
    for name, value in cast("Mapping[object, object]", settings).items():
        if isinstance(value, Mapping):
            found |= secrets_of(cast("object", value))
        elif isinstance(value, str) and len(value) >= _SHORTEST and _NAME.search(str(name)):
            found.add(value)
    return found


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` with each secret replaced by ``***``."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
