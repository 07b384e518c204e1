"""Pytest puts this file's folder on the path, so that tests can import its modules."""
