"""The same jobs in aflow, in other stream processors and by hand: ``python -m bench.peers`` prints the table.

Read ``jobs.py`` first (jobs and their input), then ``contenders.py`` (peers, their packages, and what each cannot
do), ``comparison.py`` (runs in turn, results compared) and ``programs/``, a program for each peer.
"""
