"""Sorts, and the first elements of them: networks in registers, and merges in global memory."""

from tvm_tile.schedule.sort.rule import schedule_sort

__all__ = ["schedule_sort"]
