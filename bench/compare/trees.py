"""The package as git knows it: of a commit, or as it lies in the working tree."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_PACKAGE = "tvm_tile"
WORKING_TREE = "working-tree"


class NoSuchCommit(Exception):
    """Git does not know it, or it has no such package; the message is for people."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The package at one commit.

    Attributes:
        label: how people call it.
        digest: git's name of its content.
        root: of the checkout.
    """

    label: str
    digest: str
    root: Path = ROOT

    def extract(self, folder: Path) -> None:
        """Write the package into a folder, as ``folder/tvm_tile``."""
        archive = _git(self.root, "archive", "--format=tar", f"--prefix={_PACKAGE}/", self.digest)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")


def committed(commit: str, root: Path = ROOT) -> Tree:
    """The package at a commit.

    Raises:
        NoSuchCommit: there is none.
    """
    label = _git(root, "rev-parse", "--verify", "--short=12", f"{commit}^{{commit}}")
    found = _git(root, "rev-parse", "--verify", f"{commit}:{_PACKAGE}")
    return Tree(label.decode().strip(), found.decode().strip(), root)


def working(root: Path = ROOT) -> Tree:
    """The package as it lies there, new files among it, as a tree of git's that nothing names."""
    return Tree(WORKING_TREE, _written(root, _PACKAGE), root)


def measures(root: Path = ROOT) -> str:
    """Git's name of what makes the workloads and describes what becomes of them."""
    described = ("compare/record.py", "compare/worker.py")
    return _written(root, "bench", "suites", "inputs.py", "workload.py", *described)


def _written(root: Path, folder: str, *parts: str) -> str:
    """Git's name of a folder's files, or of some of them, by an index of its own."""
    paths = [f"{folder}/{part}" for part in parts] or [folder]
    with tempfile.TemporaryDirectory() as temporary:
        index = {"GIT_INDEX_FILE": str(Path(temporary) / "index")}
        _git(root, "add", "--all", "--", *paths, environment=index)
        found = _git(root, "write-tree", f"--prefix={folder}/", environment=index)
    return found.decode().strip()


def _git(root: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
    command = ("git", "-C", str(root), *arguments)
    done = subprocess.run(command, capture_output=True, env={**os.environ, **(environment or {})})
    if done.returncode:
        raise NoSuchCommit(" ".join(done.stderr.decode().split()) or " ".join(command))
    return done.stdout
