"""Formats of messages: the bytes of a record in a topic, a stream or a queue, and back.

``Json`` is the default of all connectors for messages. ``Raw`` keeps bytes, ``Text`` is UTF-8. ``format.py`` has the
interface, for formats of your own. Files have formats of their own (``aflow_connectors.files``).
"""

from __future__ import annotations

from aflow_connectors.formats.format import Format, FormatError
from aflow_connectors.formats.json import Json
from aflow_connectors.formats.plain import Raw, Text

__all__ = ["Format", "FormatError", "Json", "Raw", "Text"]
