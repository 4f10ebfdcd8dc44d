"""The header ``Link`` (RFC 8288, section 3).

Addresses may contain commas and semicolons, and quoted parameters any character. Names of parameters and relations are
compared without regard to case, and ``rel`` may name several relations.
"""

from __future__ import annotations

import re
from typing import Final

_TARGET: Final = re.compile(r"<([^>]*)>")
_PARAMETER: Final = re.compile(r"""\s*;\s*([^\s=;,"<]*)\s*(?:=\s*("(?:[^"\\]|\\.)*"|[^\s;,"]*))?""")


def linked(header: str, rel: str) -> str | None:
    """Return the first address with this relation; None if there is none."""
    end = 0
    while (target := _TARGET.search(header, end)) is not None:
        end = target.end()
        relations: str | None = None
        while (parameter := _PARAMETER.match(header, end)) is not None:
            end = parameter.end()
            # The first rel counts (section 3.3).
            if parameter[1].lower() == "rel" and relations is None:
                relations = re.sub(r"\\(.)", r"\1", (parameter[2] or "").strip('"'))
        if rel.lower() in (relations or "").lower().split():
            return target[1].strip()
    return None
