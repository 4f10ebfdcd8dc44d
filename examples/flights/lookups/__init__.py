"""Each flight looks up its weather at an HTTP service, and an as-of join checks the answers.

Read ``pipeline`` first, and ``client``, which makes the calls. ``command`` starts the service and runs the pipeline;
``display`` and ``report`` show progress and results. The service (``service``, ``capacity``, ``faults``) runs in a
process of its own (``service_process``): requests use sockets, and its work takes no time from the event loop of the
pipeline. It is slow, overloaded or failing at times, as its seed determines.
"""
