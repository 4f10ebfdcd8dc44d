"""Operators: the steps of a pipeline in one subtask. Read ``base`` first, then ``stateless`` and ``keyed_function``.

An operator is synchronous: it takes batches and elements, and pushes batches into its output. ``calls`` has the async
steps, ``joins`` and ``windows`` those families. Not in here: decisions that need no user function (``machines``), state
backends (``state``), the tasks that drive operators (``runtime``).
"""
