"""A report as lines, tables and drawings for people, and as JSON for programs.

``summary.py`` is what users read first. ``gantt.py`` draws the plan of a persistent kernel,
``flow_drawing.py`` its control flow, which ``flow_text.py`` says in words.
"""
