"""Stages of the pipeline that take several passes, and what holds around all of them.

``fusing.py`` makes fused loops of a model's operators, ``opening.py`` does so for a model of open
extents, ``coscheduling.py`` adds persistent kernels. Around a whole compilation, ``guarded.py``
lets one run at a time and only typed errors out, and ``opened_store.py`` finds what was made
earlier. Its key holds a sum of the package's files, so that plans of other code are never found,
and nothing is kept while these files are newer than what the process imported. ``forced.py`` has
options for measurements, by which a compilation does not decide for itself.
"""
