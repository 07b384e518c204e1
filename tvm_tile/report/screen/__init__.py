"""A report as lines, tables and drawings for people, and as JSON for programs."""
