"""Files that ``torch.export.save`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tvm_tile.errors import ModelFileError
from tvm_tile.files.whole_file import open_regular


def read_exported(path: Path) -> Any:
    """The ``torch.export.ExportedProgram`` in a .pt2 file.

    Raises:
        ModelFileError: torch is not installed, or cannot read the file.
    """
    try:
        with open_regular(path) as file:
            import torch

            return torch.export.load(file)
    except Exception as error:  # zip, pickle, JSON and torch raise what they like
        raise ModelFileError(
            "a .pt2 file must be one that torch.export.save wrote, and torch installed",
            f"{path}: {type(error).__name__}: {str(error)[:300]}",
            "export and save the model again, with this version of torch",
        ) from error
