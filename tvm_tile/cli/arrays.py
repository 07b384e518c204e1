"""Arrays that ``tvm-tile run`` reads, describes and writes."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvm_tile.errors import InputError
from tvm_tile.files.whole_file import replacing


def read_array(path: Path) -> Any:
    """The array in a .npy file.

    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    import numpy as np

    try:
        value = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, SyntaxError, zipfile.BadZipFile) as error:
        raise InputError(
            "an input file must be a NumPy array",
            f"{path}: {error}",
            "write it with numpy.save(path, array)",
        ) from error
    if not isinstance(value, np.ndarray):
        raise InputError(
            "an input file must hold one array",
            f"{path} is an archive of several",
            "write one .npy file an input",
        )
    return value


def describe_array(value: Any) -> str:
    """Type, shape and range of an array, for people."""
    shape = "x".join(map(str, value.shape)) or "scalar"
    text = f"{value.dtype} {shape}"
    if value.size == 0:
        return text
    numbers = value.astype("float64")
    return f"{text}, from {numbers.min():.6g} to {numbers.max():.6g}, mean {numbers.mean():.6g}"


def write_arrays(arrays: Mapping[str, Any], path: Path) -> None:
    """Write a .npz file, whole or not at all; any name will do, unlike with ``numpy.savez``.

    Raises:
        OSError: the file cannot be written.
    """
    import numpy as np

    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
