"""Scans: of rows whose elements are neighbours, and of rows that are neighbours themselves."""

from tvm_tile.schedule.scan.rule import schedule_scan

__all__ = ["schedule_scan"]
