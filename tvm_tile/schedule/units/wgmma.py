"""Products on Hopper's tensor cores, a warpgroup at a time: asynchronous, to sums in registers.

An instruction multiplies 64 rows by its width, 32 bytes of the depth. Its left operand is in shared
memory or in registers, its right one in shared memory. What is in shared memory is told by matrix
descriptors: :meth:`~tvm_tile.schedule.units.bulk_copies.TmaChunks.descriptor` makes them.

Of a left operand with two numbers in four, an instruction multiplies twice the depth, and a word of
each thread's says which two (:mod:`tvm_tile.graph.sparsity`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.graph.tile_graph import element_size
from tvm_tile.schedule.tensor_cores.instructions import PTX_NAMES
from tvm_tile.tile.products.warpgroup import TRANSPOSABLE
from tvm_tile.tile.products.warpgroup_tile import ROWS, STEP_BYTES

# Sums' dtype -> its name, and the dtype by which TVM knows such registers.
SUMS = {"float32": ("f32", "float32"), "int32": ("s32", "uint32")}


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a warpgroup.

    Attributes:
        width: columns.
        dtypes: types of the left and of the right operand, equally wide.
        turned: whether, for each operand in shared memory, its rows are contiguous and not its
            depth.
        sum_dtype: type of the sums, of which a thread has ``width // 2``.
    """

    width: int
    dtypes: Sequence[str]
    turned: Sequence[bool]
    sum_dtype: str = "float32"

    def add(self, sums: Any, first: int, left: Sequence[Any], right: Any, adds: Any) -> None:
        """Begin to add a product to a thread's sums.

        Args:
            sums: registers.
            first: number of the first sum that is added to.
            left: the left operand's descriptor, or its four registers.
            right: the right operand's descriptor.
            adds: whether the sums are added to; if not, the product takes their place.
        """
        size = element_size(self.dtypes[0])
        operands = ".".join(PTX_NAMES[dtype] for dtype in self.dtypes)
        shape = f"m{ROWS}n{self.width}k{STEP_BYTES // size}.{SUMS[self.sum_dtype][0]}"
        own = self._sums(sums, first)
        modifiers = [] if self.sum_dtype == "int32" else [1, 1]  # neither operand is negated
        if size == TRANSPOSABLE:
            modifiers += map(int, self.turned)
        predicate = int(adds) if isinstance(adds, bool) else tirx.Cast("int32", adds)
        name = f"wgmma.mma_async.sync.aligned.{shape}.{operands}"
        ib.evaluate(T.ptx[name](*own, *left, right, T.ptx.pred(predicate), *modifiers))

    def add_sparse(
        self, sums: Any, first: int, left: Any, right: Any, adds: Any, told: tuple[Any, int]
    ) -> None:
        """Begin to add a product with a left operand in shared memory that has two numbers in four.

        TVM has no name for the instruction.

        Args:
            sums: registers of float32.
            first: number of the first sum that is added to.
            left: the left operand's descriptor.
            right: the right operand's descriptor.
            adds: whether the sums are added to; if not, the product takes their place.
            told: a thread's word that tells which numbers there are, and which half of every four
                lanes has those that count, 0 or 1.
        """
        word, half = told
        dtypes = [PTX_NAMES[dtype] for dtype in self.dtypes]
        depth = 2 * STEP_BYTES // element_size(self.dtypes[0])
        name = f"wgmma_sparse_m{ROWS}n{self.width}k{depth}_{'_'.join(dtypes)}"
        name = "_".join([name, *map(str, map(int, self.turned)), str(half)])
        own = self._sums(sums, first)
        count = len(own)
        instruction = f"wgmma.mma_async.sp.sync.aligned.m{ROWS}n{self.width}k{depth}.f32"
        registers = ", ".join(f"%{i}" for i in range(count))
        turned = ", ".join(str(int(own)) for own in self.turned)
        source = f"""
__forceinline__ __device__ void {name}({"".join(f"float& d{i}, " for i in range(count))}
    unsigned long long a, unsigned long long b, unsigned int told, int adds) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 3}, 0;\\n"
      "{instruction}.{".".join(dtypes)} {{{registers}}}, "
      "%{count}, %{count + 1}, %{count + 2}, {half}, p, 1, 1, {turned}; }}"
      : {", ".join(f'"+f"(d{i})' for i in range(count))}
      : "l"(a), "l"(b), "r"(told), "r"(adds));
}}
"""
        flag = tirx.Cast("int32", adds) if not isinstance(adds, bool) else tirx.const(int(adds))
        call = T.cuda.func_call(name, *own, left, right, word, flag, source_code=source)
        ib.evaluate(call)

    def _sums(self, sums: Any, first: int) -> list[Any]:
        """The registers that are added to, from the first on."""
        return [sums[first + i] for i in range(self.width // 2)]


@contextmanager
def group(*registers: Any) -> Iterator[None]:
    """A frame for instructions that are waited for together.

    They take these registers as what lies ahead of the frame has left them.
    """
    _keep(registers)
    ib.evaluate(T.ptx.wgmma.fence.sync.aligned())
    yield
    ib.evaluate(T.ptx.wgmma.commit_group.sync.aligned())


def wait(running: int, *registers: Any) -> None:
    """Wait until at most ``running`` groups run; others have then written these registers."""
    ib.evaluate(T.ptx.wgmma.wait_group.sync.aligned(running))
    _keep(registers)


def _keep(buffers: Sequence[Any]) -> None:
    """Keep the compiler from moving what reads or writes registers of running products."""
    for registers in buffers:
        is_float = str(registers.ty.dtype) == "float32"
        letter, kind = ("f", "float") if is_float else ("r", "unsigned int")
        source = f"""
__forceinline__ __device__ void keep_{letter}({kind}& value) {{
  asm volatile("" : "+{letter}"(value));
}}
"""
        for i in range(int(registers.ty.shape[0])):
            ib.evaluate(T.cuda.func_call(f"keep_{letter}", registers[i], source_code=source))
