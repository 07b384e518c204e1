"""The report's pictures. Each function draws one, or returns None where it has no data."""
