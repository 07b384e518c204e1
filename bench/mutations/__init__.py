"""Damaged and forged files: are they told, or harmless? See ``bench/mutations/__main__.py``."""
