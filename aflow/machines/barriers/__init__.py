"""Barrier machines: how a task that reads several channels takes part in a checkpoint. Read ``events`` first.

Theory. A *barrier* cuts a channel: the records before it belong to the checkpoint, those after it do not. A task with
several channels receives their barriers one by one. The machines differ in what happens in between:

- ``BarrierTracker`` (at least once) blocks nothing and triggers at the last barrier. Records that follow an early
  barrier are in the state, and are sent again after a failure.
- ``BarrierAligner`` (exactly once) blocks each channel at its barrier and triggers when all have arrived.
- ``AlternatingBarriers`` (exactly once) starts aligned, and turns unaligned when the timeout of a barrier expires or
  when a barrier has overtaken. From then on it captures records in flight as part of the checkpoint. It serves
  ``Unaligned()`` as well: then periodic barriers overtake from the start, and savepoints stay aligned.

All machines take the events of ``events`` and return its instructions, in the order in which they are to be carried
out. They share these rules: a barrier or a cancellation of a checkpoint older than the latest is ignored; the end of a
channel counts as its barrier; a second barrier of one checkpoint on one open channel is a corrupt stream
(``InternalError``).

Barriers after the end. A task whose input has ended still takes part in checkpoints, so barriers follow the end of a
channel. While other channels are open, a barrier after an end is ignored: the end already counts, in every checkpoint.
When all channels have ended, the first barrier of a new checkpoint triggers and completes it at once, aligned, and the
same barrier in other channels is ignored. If a barrier after the end was announced and the last channel ends before it
arrives, the end triggers the checkpoint.

Not in here: channels and captured records (``runtime/checkpoints``), the decision to take a checkpoint
(``machines/checkpoints``).
"""
