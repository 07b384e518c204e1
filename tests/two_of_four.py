"""Products with a matrix that has two numbers in each four, kept without its zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from emulated import Arguments, arguments
from kernels import Case, prim_functions
from tvm import tirx

from tvm_tile.device import Device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.sparsity import compress
from tvm_tile.passes.weld.skip_zeros import matrices_of
from tvm_tile.schedule import Choice, Task
from tvm_tile.schedule.compressed import with_compressed
from tvm_tile.schedule.wgmma import schedule_wgmma

_EVERY = 1000


def pruned(rng: np.random.Generator, rows: int, depth: int, dtype: Any = np.float16) -> np.ndarray:
    """A random matrix of which any two of each four are zeros, of both signs, and some more: rows
    with one number in each four, and with none."""
    values = rng.standard_normal((rows, depth))
    groups = values.reshape(rows, -1, 4)
    order = rng.permuted(np.broadcast_to(np.arange(4), groups.shape), axis=2)
    zeros = np.where(rng.random((rows, depth // 4, 2)) < 0.5, 0.0, -0.0)
    np.put_along_axis(groups, order[:, :, :2], zeros, 2)
    np.put_along_axis(groups[1::7], order[1::7, :, 2:3], 0.0, 2)
    groups[3::11] = 0
    return values.astype(dtype)


@dataclass(frozen=True, slots=True)
class Compressed:
    """A function that takes a matrix without its zeros, and arguments of it.

    Attributes:
        func: the function.
        of: arguments, and what the CPU makes of them.
        matrix: the matrix, by rows of what is summed up.
        others: names of the other inputs.
    """

    func: tirx.PrimFunc
    of: Arguments
    matrix: np.ndarray
    others: tuple[str, ...]


def compressed(case: Case, device: Device, matrix: np.ndarray, place: int = 1) -> Compressed:
    """A product of a case, whose input at ``place`` is a matrix, by rows of what is summed up."""
    (func,) = prim_functions(case, device).values()
    (own,) = (one for one in matrices_of(func) if one[0] == place)
    made = with_compressed(func, own, len(case.inputs))
    values, words = compress(matrix)
    names = [str(param.name) for param in made.params]
    known = {names[place]: values, names[len(case.inputs)]: words}
    of = arguments(made, known)
    others = tuple(name for name in names if name not in known and name not in of.outputs)
    return Compressed(made, of, matrix, others)


def tiles_of(func: tirx.PrimFunc, device: Device) -> list[Choice]:
    """All of the rule's choices, best first."""
    graph = extract(func)
    assert graph is not None
    return list(schedule_wgmma(Task(func, graph, device), _EVERY))
