"""Change data capture from PostgreSQL: rows of tables, and then each change of them.

Read ``source.py`` first, then ``reader.py``, which has the protocol of the snapshot, and ``transactions.py``, the
machine of positions. ``messages.py`` decodes the stream, ``session.py`` and ``stream.py`` are its connection. The
client is ``psycopg``.
"""

from __future__ import annotations
