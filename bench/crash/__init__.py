"""A test by random kills: a pipeline that is killed and restarted writes the output of an undisturbed run.

``proof`` is the command ``python -m bench crash``; read it first. ``rounds`` starts and kills the program until it
ends, ``attempt`` is one start, ``program`` and ``pipeline`` are what is killed, ``outputs`` compares, ``cpu``
tells a slow program from one that hangs.
"""
