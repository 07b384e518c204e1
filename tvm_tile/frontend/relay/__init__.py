"""Saved programs of Relay, the language in which TVM kept models until 2025.

The readers of text (``text.py``) and of JSON (``json_file.py``) fill in every attribute that a
program leaves out. ``evaluate.py`` computes what only structures a program, such as functions and
tuples, and calls the converters of ``operators/`` for tensors. ``tests/relay_corpus/`` has programs
with the results that Relay itself computed of them.
"""
