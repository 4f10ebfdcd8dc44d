"""Checkpoints of a running job: what is asked of the tasks, where it is stored, and how a job goes on from it."""
