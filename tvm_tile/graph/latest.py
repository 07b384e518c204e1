"""The latest of what was found, for all models of a process."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """What was found by keys, the latest of it; threads may share it.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Hashable, T] = {}
        self._lock = threading.Lock()

    def find(self, key: Hashable) -> T | None:
        """What was found by a key, where that is known."""
        return self._found.get(key)

    def keep(self, key: Hashable, found: T) -> None:
        """Keep what was found, and forget what was kept first where there is too much."""
        with self._lock:
            self._found[key] = found
            while len(self._found) > self._most:
                del self._found[next(iter(self._found))]
