"""The description of a pipeline: nodes and edges, their validation, the plan of tasks, and its drawings.

Nothing here runs or waits; ``aflow.runtime`` builds tasks from a plan. Read ``nodes.py`` first, then ``flow_graph.py``
(the rules of a pipeline) and ``plan.py`` (chaining and parallelism).
"""
