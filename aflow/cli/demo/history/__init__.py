"""``aflow demo backfill``: half a year on Spark, the other half live from what that left, and both are one live year.

``pipeline`` is the example to read: nothing in it knows where it runs.
"""
