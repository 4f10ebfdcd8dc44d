"""``aflow demo``: the flights that left New York in 2013, replayed as they happened.

``pipeline`` is the example to read.
"""
