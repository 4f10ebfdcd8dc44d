"""``aflow demo weather``: each flight asks a service over HTTP for its weather, and an as-of join checks the answers.

The service (``service``, ``observed``, ``faults``, ``desk``) runs in a process of its own (``apart``): what is asked of
it goes through sockets, and what it does takes no time from the loop of the pipeline. It is slow, busy and broken at
times, on purpose and by a seed. The rest is the other side: ``client`` asks, ``pipeline`` is the flow around it.
"""
