"""Weights of products: constants as they are stored, or what decodes a matrix of codes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tvm_tile.graph.codes import Coded, stacked
from tvm_tile.graph.constant_tensors import constant_of_parts, elements_of
from tvm_tile.graph.tensor_format import Entries, TensorFormat
from tvm_tile.loops.decoding import coded_of, decode, format_of, kept_constants
from tvm_tile.passes.ir.rewriter import is_call_tir, size_of


@dataclass(frozen=True, slots=True)
class ConstantMatrix:
    """A constant, as it is stored.

    Attributes:
        constant: itself.
        is_turned: whether that is columns by depth, and transposed before it is multiplied.
    """

    constant: Any
    is_turned: bool

    @property
    def columns(self) -> int:
        """Columns of the product."""
        return int(self.constant.ty.shape[0 if self.is_turned else 1])

    @property
    def bytes(self) -> int:
        """Bytes of the constant."""
        return size_of(self.constant.ty)

    @property
    def kind(self) -> Hashable:
        """A key that matrices share which can lie side by side."""
        return None

    @property
    def matrix(self) -> Any:
        """The weights as an array, depth by columns."""
        array = elements_of(self.constant)
        return array.T if self.is_turned else array


@dataclass(frozen=True, slots=True)
class DecodedMatrix:
    """Matrix that is decoded of codes, columns by depth, and transposed before it is multiplied.

    Attributes:
        format: how it is kept.
        shape: columns and depth.
        constants: all that is kept, as its function takes it.
    """

    format: TensorFormat
    shape: tuple[int, ...]
    constants: tuple[Any, ...]

    @classmethod
    def of(cls, value: Any, mod: tvm.IRModule) -> DecodedMatrix | None:
        """The matrix that a call decodes; ``None`` where it decodes no constants."""
        form = format_of(mod[value.args[0]]) if is_call_tir(value) else None
        if form is None:
            return None
        arguments = tuple(value.args[1].fields)
        if not all(isinstance(argument, tvm.ir.Constant) for argument in arguments):
            return None
        return cls(form, tuple(map(int, value.ty.shape)), arguments)

    @property
    def columns(self) -> int:
        """Columns of the product."""
        return self.shape[0]

    @property
    def bytes(self) -> int:
        """Bytes of all that is kept of the matrix: codes, and what decodes them."""
        return self.format.bytes(self.shape)

    @property
    def kind(self) -> Hashable:
        """A key that matrices share which can lie side by side."""
        table = self._table
        return self.format.by_row(), None if table is None else table.tobytes()

    @property
    def coded(self) -> Coded:
        """Arrays of codes and shared numbers."""
        return coded_of(self.format, self.shape, self.constants)

    @property
    def _table(self) -> Any:
        """The table that the codes number, if there is one."""
        has_table = isinstance(self.format.code, Entries)
        return elements_of(self.constants[1]) if has_table else None


Weights = ConstantMatrix | DecodedMatrix


def side_by_side(parts: Sequence[Weights], builder: relax.BlockBuilder) -> tuple[Any, bool]:
    """Weights of one kind side by side, and whether that is all columns by depth.

    Constants that all are transposed first are so side by side, too. Codes become one matrix of
    codes, which one function decodes.

    Args:
        parts: weights of one kind.
        builder: builder that a function that decodes is added to.
    """
    coded = [part.coded for part in parts if isinstance(part, DecodedMatrix)]
    if coded:
        whole = stacked(coded)
        assert whole is not None, "they are of one kind"
        return decode(builder, whole, kept_constants(whole)), True
    constants = [part for part in parts if isinstance(part, ConstantMatrix)]
    is_turned = all(part.is_turned for part in constants)
    matrices = [part.matrix.T if is_turned else part.matrix for part in constants]
    dtype = str(constants[0].constant.ty.dtype)
    return constant_of_parts(matrices, 0 if is_turned else 1, dtype), is_turned
