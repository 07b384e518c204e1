"""A merge of sorted runs in global memory: each element finds its rank by itself.

::

    for row, run, i in threads:
        rank = i + how many elements of the run beside come before runs[row, run, i]
        merged[row, run // 2, rank] = runs[row, run, i]

It reads one tensor and writes another, and no two elements have one rank: there is nothing to wait
for. The last merge writes the outputs.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.loops.rows import number
from tvm_tile.loops.sorting import Ordering, Sorted
from tvm_tile.schedule.scan.states import States, bound, when
from tvm_tile.tile.rows.sort import Runs

_THREADS = 256


def write_merge(
    name: str,
    runs: Runs,
    ordering: Ordering,
    tensors: Sorted,
    source: States,
    target: States | None,
) -> None:
    """Write the kernel that merges ``source``; into the outputs where there is no ``target``."""
    rows, kept = ordering.sort.rows.count, ordering.sort.kept
    each = (runs.count - 1) * runs.size + runs.last
    merged = runs.merged(kept)
    own = States.allocated(f"{name}_own", (1,), ordering.dtypes, "local")
    found = ib.sblock_alloc_buffer((number(1),), "int64", scope="local")
    IRBuilder.name(f"{name}_found", found)
    with (
        bound(-(-rows * each // _THREADS), "blockIdx.x") as group,
        bound(_THREADS, "threadIdx.x") as thread,
    ):
        number_of = ib.Bind(group * number(_THREADS) + thread)
        with when([number_of < number(rows * each)] if rows * each % _THREADS else []):
            row = ib.Bind(number_of // number(each))
            element = ib.Bind(number_of % number(each))
            run, place = ib.Bind(element // number(runs.size)), element % number(runs.size)
            own.store(source.load([row, element]), [0])
            beside = ib.Bind(run + number(1) - run % number(2) * number(2))
            begin = ib.Bind(beside * number(runs.size))
            length = ib.Bind(_length(runs, beside))
            # A search in halves: the greatest number of elements that all come before.
            ib.buffer_store(found, number(0), [0])
            bits = runs.size.bit_length()
            with ib.serial(number(bits)) as step:
                further = ib.Bind(found[0] + (number(1 << (bits - 1)) >> step))
                with when([further <= length]):
                    other = source.load([row, begin + (further - number(1))])
                    is_before = ordering.is_before(other, own.load([0]))
                    ib.buffer_store(found, tirx.Select(is_before, further, found[0]), [0])
            rank = ib.Bind(found[0] + place)
            with when([rank < number(merged.size)]):
                if target is None:
                    tensors.store(row, rank, ordering.place_in(own.load([0])))
                else:
                    at = run // number(2) * number(merged.size) + rank
                    target.store(own.load([0]), [row, at])


def _length(runs: Runs, run: Any) -> Any:
    """Elements of a run; none of a run behind the last one."""
    last = number(runs.count - 1)
    is_last = tirx.Select(run == last, number(runs.last), number(0))
    return tirx.Select(run < last, number(runs.size), is_last)
