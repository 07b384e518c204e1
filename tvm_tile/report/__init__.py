"""What was compiled and measured, as data, and how people see it.

``compiled.py`` says what was compiled and why; ``shown.py`` is what users hold, and ``screen/`` and
``page/`` show it. Of a watched run, ``activities.py`` has what the device did, ``profile.py`` what
that says of each kernel, ``symbols.py`` to which function a kernel belongs, and ``veu_times.py``
when each piece of work of a persistent kernel ran; ``comparison.py`` matches kernels of two
compilations.
"""
