"""Checkpoints of a running job: barriers in the tasks, the coordinator, storage, and restores.

``coordinator`` triggers and completes checkpoints, ``checkpointed_input`` and ``subtask_checkpointer`` are the parts of
a task, ``restoration`` is a checkpoint from the view of the job that continues from it, ``directory`` the storage in a
folder. The decisions are in ``aflow.machines.checkpoints`` and ``aflow.machines.barriers``, the stored formats in
``aflow.state``. Read ``subtask_checkpointer`` first.
"""
