"""What ``tvm-tile run`` reads, makes, describes and writes: arrays."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_tile.errors import InputError
from tvm_tile.whole_file import replacing

if TYPE_CHECKING:
    from tvm_tile.runtime import CompiledModel


def read_array(path: Path) -> Any:
    """The array in a .npy file.

    Raises:
        InputError: it cannot be read, or holds something else.
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


def random_inputs(model: CompiledModel, seed: int) -> list[Any]:
    """Arrays that a model takes: normally distributed, or zeros and ones."""
    import ml_dtypes  # noqa: F401  (teaches NumPy the name "bfloat16")
    import numpy as np

    generator = np.random.default_rng(seed)
    values: list[Any] = []
    for signature in model.inputs:
        if "float" in signature.dtype:
            value: Any = generator.standard_normal(signature.shape)
        else:
            # 0 and 1 are in range whatever the integers mean: labels, token numbers, masks.
            value = generator.integers(0, 2, signature.shape)
        # Of no dimension, NumPy draws its own kind of number.
        values.append(np.asarray(value).astype(signature.dtype))
    return values


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
        OSError: it cannot be written.
    """
    import numpy as np

    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
