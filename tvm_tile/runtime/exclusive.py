"""One measurement at a time among the processes of a user."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def one_at_a_time(device_name: str) -> Iterator[None]:
    """Wait until nobody else measures on this device, and keep others waiting meanwhile.

    Threads exclude one another like processes do; the operating system lets go for a holder that
    dies. Where no lock file can be made, nobody waits: a disturbed measurement is better than
    none.
    """
    name = re.sub(r"\W+", "_", device_name)
    path = Path(tempfile.gettempdir()) / f"tvm_tile-{os.getuid()}-{name}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
