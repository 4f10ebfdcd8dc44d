"""The runtime: jobs on an asyncio event loop. Read ``task`` first, then ``job_builder``.

``job`` is the handle for the host, ``attempt`` one run of the job, ``job_builder`` creates its tasks, ``task`` is one
subtask with its mailbox (``mailbox_loop``), input (``gate``, ``source_input``) and ``operator_chain``. Tasks are
connected by ``exchanges``. ``calls`` makes the calls of asynchronous steps, ``checkpoints`` stores and restores state,
``builtin_connectors`` are the sources and sinks of this process.

Not here: decisions (``aflow.machines``), operators (``aflow.operators``), and the definition of pipelines
(``aflow.graph``, ``aflow.api``).
"""
