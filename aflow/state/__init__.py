"""State: what steps declare, how it is kept while a job runs, and how it becomes bytes.

- Declarations and cells: ``specs``, ``cells``, ``aggregate``, ``aggregates``.
- Backends: ``backend`` (the protocol), ``memory``, ``disk``, ``backend_choice``. ``tables`` holds the rows of each
  state, ``timed_rows`` their time to live, ``transactions`` the state of handlers that wait. ``broadcast`` is state
  without keys.
- Bytes: ``keyed_entries`` and ``snapshot`` (the state of an operator as data), ``layouts``, ``descriptions``,
  ``schema_change`` and ``inferred_codecs`` (the state of one key), ``parts`` and ``manifest`` (the files of a
  checkpoint), ``change_plan`` (the comparison of a checkpoint with a pipeline), ``stored_values`` (state for display).

When checkpoints are taken, and where their files are, is in ``aflow.machines.checkpoints`` and
``aflow.runtime.checkpoints``. Read ``specs``, ``backend`` and ``snapshot`` first.
"""
