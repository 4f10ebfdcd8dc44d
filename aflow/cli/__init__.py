"""The ``aflow`` command: ``aflow run``, ``aflow graph`` and ``aflow savepoint``.

It owns its process: event loop, signals and terminal. It contains no logic of pipelines: it imports a flow (``target``,
``build_options``, ``parameter_types``), runs it (``runner``) and prints (``errors``, ``metrics_table``,
``savepoint_report``). Read ``commands`` first.
"""

from aflow.cli.commands import main

__all__ = ["main"]
