"""Processes at one commit, as the comparison sees them."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from bench.compare.requests import Request
from bench.compare.trees import ROOT

_END_S = 5.0


class Ended(Exception):
    """The process crashed, or took too long and was ended; the message says which."""


class NotStarted(Exception):
    """No process starts with the package of that commit; the message says why."""


class Worker:
    """A process that answers requests.

    Args:
        folder: in which the package lies, as ``tvm_tile``.
        log: the file that what it prints is added to.
        limit_s: seconds that one answer may take.

    Raises:
        NotStarted: it does not start, or with another package.
    """

    def __init__(self, folder: Path, log: Path, limit_s: float) -> None:
        self._limit_s = limit_s
        self._connection, theirs = Pipe()
        # The package is the commit's, and all else, the benchmark's own modules among it, ours.
        paths = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "TVM_TILE_CACHE": ""}
        command = (sys.executable, "-m", "bench.compare.worker", str(theirs.fileno()))
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
            )
        theirs.close()
        try:
            package = Path(self.answer())
        except Ended as reason:
            raise NotStarted(f"tvm_tile cannot be imported: {reason}; see {log}") from None
        if package.parent.parent.resolve() != folder.resolve():
            self.end()
            raise NotStarted(f"tvm_tile was imported from {package.parent}, not from {folder}")

    def ask(self, request: Request) -> Any:
        """The answer to a request."""
        self.send(request)
        return self.answer()

    def send(self, request: Request) -> None:
        """Hand in a request, whose answer is fetched later."""
        try:
            self._connection.send(request)
        except OSError:
            raise self._ended() from None

    def answer(self) -> Any:
        """The answer to the last request, once it is there."""
        try:
            if self._connection.poll(self._limit_s):
                return self._connection.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        self.end()
        raise Ended(f"hangs: no answer in {self._limit_s:.0f} s")

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait(_END_S)
        self._connection.close()

    def _ended(self) -> Ended:
        status = self._process.wait(_END_S)
        self._connection.close()
        return Ended(f"crashed: its process ended with status {status}")
