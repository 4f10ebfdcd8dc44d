"""The ``aflow`` command: ``aflow run``, ``aflow graph``, ``aflow savepoint``, ``aflow bench`` and ``aflow top``.

It owns its process: event loop, signals and terminal. It contains no logic of pipelines: it imports a flow (``target``,
``build_options``, ``parameter_types``), runs it (``runner``) and prints (``errors``, ``metrics_table``,
``savepoint_report``). ``top`` asks another program over HTTP instead. Read ``commands`` first.
"""

from aflow.cli.commands import main

__all__ = ["main"]
