"""Windows. `logic` is what a step is told, `choice` says which operator does it.

`general` does everything: any assigner, trigger, evictor and function. Its parts:

- `separate` and `merged`: the windows there are, for windows that stay as they are and for those that merge;
- `contents`: what a key has in a window, folded, kept, or kept for an evictor;
- `trigger_context`, `function_context`, `window_state`: what triggers and functions see and remember;
- `timers`, `horizon`: when to look at a window, and when it is late or gone;
- `filed`: all of it in a snapshot.

Where all there is to do is fold, and give the result at the end of event time, others are faster. They share
`incremental` and `folding`: `panes` with `two_stacks` (tumbling and sliding windows) and `sessions`.
"""
