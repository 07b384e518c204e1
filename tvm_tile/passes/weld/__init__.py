"""Decide which operators are one kernel, and make its function."""
