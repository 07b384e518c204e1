"""Pytest puts the folder above this package on the path, so that tests can import its modules."""
