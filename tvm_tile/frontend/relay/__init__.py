"""Saved programs of Relay, the language in which TVM kept models until 2025."""
