"""What was compiled and measured, as data, and how people see it."""
