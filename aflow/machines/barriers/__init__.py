"""How a task that reads several channels takes part in a checkpoint: four machines behind one interface.

Theory. A checkpoint cuts every channel at its *barrier*: what came before is in the checkpoint, what comes after is
not. A task that reads several channels gets their barriers one by one, and the machines differ in what happens in
between:

- ``BarrierTracker`` (at least once) lets everything pass and triggers at the last barrier: records behind a barrier
  that came early are in the state and are sent again after a failure.
- ``BarrierAligner`` (exactly once) blocks each channel at its barrier and triggers when all have come.
- ``BarrierUnaligner`` (exactly once) triggers at the first barrier. The records in front of the others, still on their
  way, become part of the checkpoint.
- ``AlternatingBarriers`` begins aligned and goes on unaligned when a barrier is older than its timeout.

All take the events of ``events`` and answer with its instructions, in the order in which they are to be carried out.
Rules that are the same for all: a barrier or a cancellation of an older checkpoint than the latest changes nothing; a
channel that has ended counts as one that sent its barrier; a second barrier of one checkpoint on one open channel is a
corrupt stream (``InternalError``). More in ``events.Barriers``.

Barriers behind the end. A task whose input has ended still takes part in checkpoints, so barriers follow the end of a
channel. While other channels are open, a barrier behind an end is ignored: the end counts already, in every checkpoint.
When all channels have ended, nobody is waited for: the first barrier of a new checkpoint triggers it and completes it
at once, aligned, and the same barrier in other channels is ignored. If a barrier behind the end was announced and the
last channel ends before it comes, the end triggers the checkpoint.
"""
