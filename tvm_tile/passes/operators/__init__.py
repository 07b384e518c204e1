"""Operators in a form that fuses and schedules better, and computes the same."""
