"""Values that travel or that all rooms share: batches, elements, time, keys, windows, codecs. Read ``batch`` first.

Imports nothing of aflow but ``errors``. Not in here: state (``state``), and everything that decides (``machines``).
"""
