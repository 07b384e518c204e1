"""Integers wrap in their type, as NumPy's do, whatever reads them within the same kernel.

Every operator of two integers is followed by what shows a result that has left its type: a wider
type, a comparison, a shift, a sum, a mean. Each of these has operands of its own, so that its
kernel computes the operator, too, and stacks the results of all operators, so that kernels are few.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tvm_tile

torch = pytest.importorskip("torch")

from cuda_on_cpu import compile_for_cuda  # noqa: E402
from precompiled import COMPILER  # noqa: E402

BYTES = ("uint8", "int8")
WIDE = ("int16", "int32", "int64")
WIDER = {"uint8": "int32", "int8": "int32", "int16": "int32", "int32": "int64", "int64": "float64"}
REAL = {"uint8": "float32", "int8": "float32", "int16": "float32"}  # else float64
FOLLOWED = ("widened", "compared", "shifted", "summed", "averaged")

Arrays = Sequence[np.ndarray]


def truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The quotient without its fraction, in whole numbers: 0 where the divisor is."""
    quotient = np.where(a % b == 0, a // b, a // b + ((a < 0) != (b < 0)))
    return np.where(b == 0, 0, quotient).astype(a.dtype)


# Operator -> of PyTorch's tensors, of NumPy's arrays; NumPy shifts as PyTorch does.
BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "+": (lambda a, b: a + b,) * 2,
    "-": (lambda a, b: a - b,) * 2,
    "*": (lambda a, b: a * b,) * 2,
    "~": (lambda a, b: ~a,) * 2,
    "<<": (lambda a, b: a << b,) * 2,
    ">>": (lambda a, b: a >> b,) * 2,
    "//": (lambda a, b: a // b,) * 2,
    "%": (lambda a, b: a % b,) * 2,
    "fmod": (lambda a, b: torch.fmod(a, b), np.fmod),
    "trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), truncated),
    "neg": (lambda a, b: -a,) * 2,
    "abs": (lambda a, b: abs(a),) * 2,
}
# Of one tensor: what a compiler that takes integers never to overflow simplifies.
IDENTITIES: dict[str, Callable[[Any], Any]] = {
    "y * 2 // 2": lambda y: y * 2 // 2,
    "y * 6 % 3": lambda y: y * 6 % 3,
    "y * 4 // 2": lambda y: y * 4 // 2,
    "(y << 4) >> 4": lambda y: (y << 4) >> 4,
    "(y >> 4) << 4": lambda y: (y >> 4) << 4,
    "y << 70": lambda y: y << 70,
    "y >> 70": lambda y: y >> 70,
    "y * 77 + 121": lambda y: y * 77 + 121,
    "y + y - y": lambda y: y + y - y,
    "-(-y // 3)": lambda y: -(-y // 3),
    "abs(-y) % 5": lambda y: abs(-y) % 5,
    "y * y": lambda y: y * y,
    "y + 127 - (y + 126)": lambda y: y + 127 - (y + 126),
    "mixed": lambda y: (y ^ (y << 3)) ^ ((y ^ (y << 3)) >> 5),
}
COMPARED: dict[str, Callable[[Any], Any]] = {
    "y + 1 > y": lambda y: y + 1 > y,
    "y - 1 < y": lambda y: y - 1 < y,
    "y + y < 0": lambda y: y + y < 0,
    "-y < 0": lambda y: -y < 0,
    "abs(y) >= 0": lambda y: abs(y) >= 0,
    "y * y >= 0": lambda y: y * y >= 0,
    "y * 2 == y + y": lambda y: y * 2 == y + y,
    "y * 3 > 100": lambda y: y * 3 > 100,
    "y + 100 > 50": lambda y: y + 100 > 50,
    "~y > y": lambda y: ~y > y,
}
HASHED = {"int32": 1103515245, "int64": 6364136223846793005}


def values(dtype: str) -> np.ndarray:
    """All of a type, or those at its edges and some at random."""
    info = np.iinfo(dtype)
    if info.bits == 8:
        return np.arange(info.min, info.max + 1).astype(dtype)
    small = [0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 255, 256]
    ends = [info.min, info.min + 1, info.min // 2, info.max // 2, info.max // 2 + 1]
    ends += [info.max - 1, info.max]
    chosen = np.array([*ends, *small, *(-n for n in small[1:])], dtype)
    drawn = np.random.default_rng(0).integers(info.min, info.max, 64 - chosen.size, dtype, True)
    return np.concatenate([chosen, drawn])


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    one = values(dtype)
    first, second = np.meshgrid(one, one, indexing="ij")
    return np.ascontiguousarray(first), np.ascontiguousarray(second)


def operands(dtypes: Sequence[str]) -> list[np.ndarray]:
    """For each type and each follower the two operands, and all values."""
    return [
        array
        for dtype in dtypes
        for array in (*(pairs(dtype) * len(FOLLOWED)), *(pairs(dtype)[0],) * 5)
    ]


class Table(torch.nn.Module):
    """All operators, each in the way of every follower, for some types."""

    def __init__(self, dtypes: Sequence[str]) -> None:
        super().__init__()
        self.dtypes = tuple(dtypes)

    def forward(self, *arrays: Any) -> tuple[Any, ...]:
        results: list[Any] = []
        count = len(arrays) // len(self.dtypes)
        for place, dtype in enumerate(self.dtypes):
            results += self._of(dtype, arrays[place * count : (place + 1) * count])
        return tuple(results)

    def _of(self, dtype: str, arrays: Sequence[Any]) -> list[Any]:
        wider, real = getattr(torch, WIDER[dtype]), getattr(torch, REAL.get(dtype, "float64"))
        found = [[op(*arrays[2 * i : 2 * i + 2]) for op, _ in BINARY.values()] for i in range(5)]
        y = arrays[10:]
        return [
            torch.stack([x.to(wider) for x in found[0]]),
            torch.stack([x > 100 for x in found[1]]),
            torch.stack([x >> 1 for x in found[2]]),
            torch.stack([x.long() for x in found[3]]).sum(-1),
            torch.stack([x.to(real) for x in found[4]]).mean(-1),
            torch.stack([identity(y[0]).to(wider) for identity in IDENTITIES.values()]),
            torch.stack([compared(y[1]) for compared in COMPARED.values()]),
            (y[2] * 3).sum(-1),
            (y[3] + y[3]).to(wider),
            (y[4] * HASHED.get(dtype, 37) + 123).to(wider),
        ]


def wanted(dtypes: Sequence[str]) -> Iterator[tuple[str, list[str], np.ndarray]]:
    """For each result what it is, what its rows are, and NumPy's numbers."""
    for dtype in dtypes:
        a, b = pairs(dtype)
        wider, real = WIDER[dtype], REAL.get(dtype, "float64")
        with np.errstate(all="ignore"):
            found = np.stack([op(a, b) for _, op in BINARY.values()])
            same = np.stack([identity(a) for identity in IDENTITIES.values()])
            compared = np.stack([compared(a) for compared in COMPARED.values()])
            hashed = a * np.array(HASHED.get(dtype, 37), dtype) + np.array(123, dtype)
        assert found.dtype == same.dtype == hashed.dtype == dtype
        average = found.astype(real).mean(-1)
        followed = found.astype(wider), found > 100, found >> 1, found.sum(-1, "int64"), average
        for name, array in zip(FOLLOWED, followed, strict=True):
            yield f"{dtype} {name}", list(BINARY), array
        yield f"{dtype} identities", list(IDENTITIES), same.astype(wider)
        yield f"{dtype} compared", list(COMPARED), compared
        yield f"{dtype} (y * 3).sum", [], (a * np.array(3, dtype)).sum(-1, "int64")
        yield f"{dtype} y + y widened", [], (a + a).astype(wider)
        yield f"{dtype} hashed", [], hashed.astype(wider)


def check(results: Sequence[Any], dtypes: Sequence[str]) -> None:
    wrong: list[str] = []
    for found, (name, rows, array) in zip(results, wanted(dtypes), strict=True):
        wrong += differences(np.asarray(found), name, rows, array)
    assert not wrong, "\n".join(wrong)


def differences(found: np.ndarray, name: str, rows: Sequence[str], array: np.ndarray) -> list[str]:
    """What is wrong with a result, a line for each of its rows."""
    if (found.dtype, found.shape) != (array.dtype, array.shape):
        return [f"{name}: {found.dtype}{found.shape}, not {array.dtype}{array.shape}"]
    # Sums of 64-bit integers as floats depend on their order, and the ends of the range cancel.
    exact = name != "int64 averaged"
    differs = found != array if exact else ~np.isclose(found, array, rtol=1e-9, atol=2.0**14)
    lines = []
    for row in range(len(rows) or 1):
        own = differs[row] if rows else differs
        if own.any():
            at = np.unravel_index(np.argmax(own), own.shape)
            pair = (found[row][at], array[row][at]) if rows else (found[at], array[at])
            which = rows[row] if rows else ""
            where = "".join(f"[{i}]" for i in at)
            lines.append(f"{name} {which}: {own.sum()} wrong, at {where} {pair[0]}, not {pair[1]}")
    return lines


@functools.cache
def exported(dtypes: tuple[str, ...]) -> torch.export.ExportedProgram:
    return torch.export.export(Table(dtypes), tuple(map(torch.from_numpy, operands(dtypes))))


@pytest.mark.bank(2)
@pytest.mark.parametrize("dtypes", [BYTES, WIDE], ids=" ".join)
def test_from_pytorch(dtypes: tuple[str, ...]) -> None:
    model = tvm_tile.compile(exported(dtypes), "emulated")
    check(model(*map(torch.from_numpy, operands(dtypes))), dtypes)


def test_behind_torch_compile() -> None:
    torch.compiler.reset()
    model = torch.compile(Table(BYTES), backend="tvm_tile", options={"device": "emulated"})
    check(model(*map(torch.from_numpy, operands(BYTES))), BYTES)


@pytest.mark.bank(2)
@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("dtypes", [BYTES, WIDE], ids=" ".join)
def test_the_text_for_cuda(dtypes: tuple[str, ...], tmp_path: Path) -> None:
    model = compile_for_cuda(exported(dtypes), "nvidia/h200", tmp_path)
    check(model(*map(torch.from_numpy, operands(dtypes))), dtypes)


# ONNX's operators, its shifts for unsigned integers only, its negation for others.
ONNX: dict[str, tuple[str, dict[str, Any]]] = {
    "+": ("Add", {}),
    "-": ("Sub", {}),
    "*": ("Mul", {}),
    "~": ("BitwiseNot", {}),
    "<<": ("BitShift", {"direction": "LEFT"}),
    ">>": ("BitShift", {"direction": "RIGHT"}),
    "%": ("Mod", {}),
    "fmod": ("Mod", {"fmod": 1}),
    "trunc": ("Div", {}),
    "neg": ("Neg", {}),
    "abs": ("Abs", {}),
}
_ONE_OPERAND = ("~", "neg", "abs")


def onnx_operators(dtype: str) -> list[str]:
    missing = ("neg",) if dtype.startswith("u") else ("<<", ">>")
    return [name for name in ONNX if name not in missing]


def onnx_followed(dtype: str) -> list[str]:
    return [name for name in FOLLOWED if name != "shifted" or dtype.startswith("u")]


def onnx_model(dtypes: Sequence[str]) -> onnx.ModelProto:
    """What :class:`Table` computes, as far as ONNX has it: results behind each other, not
    stacked."""
    nodes, inputs, outputs, constants = [], [], [], []
    kinds = {
        dtype: helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in (*dtypes, "int32")
    }
    constants.append(onnx.numpy_helper.from_array(np.array([-1]), "last"))
    for dtype in dtypes:
        for number in ("100", "1") if dtype.startswith("u") else ("100",):
            constants.append(
                onnx.numpy_helper.from_array(np.array(int(number), dtype), dtype + number)
            )
        for followed in onnx_followed(dtype):
            a, b, out = (f"{dtype}_{followed}_{part}" for part in ("a", "b", "out"))
            inputs += [helper.make_tensor_value_info(n, kinds[dtype], [256, 256]) for n in (a, b)]
            parts = []
            for name in onnx_operators(dtype):
                operator, attributes = ONNX[name]
                result = f"{out}_{operator}_{len(parts)}"
                given = [a] if name in _ONE_OPERAND else [a, b]
                nodes.append(helper.make_node(operator, given, [result], **attributes))
                follow, more = {
                    "compared": ("Greater", ([dtype + "100"], {})),
                    "shifted": ("BitShift", ([dtype + "1"], {"direction": "RIGHT"})),
                    "averaged": ("Cast", ([], {"to": onnx.TensorProto.FLOAT})),
                }.get(followed, ("Cast", ([], {"to": onnx.TensorProto.INT32})))
                parts.append(f"{result}_{followed}")
                nodes.append(helper.make_node(follow, [result, *more[0]], [parts[-1]], **more[1]))
            reduce = {"summed": "ReduceSum", "averaged": "ReduceMean"}.get(followed)
            nodes.append(helper.make_node("Concat", parts, [out + "_all"], axis=0))
            last = ([out + "_all", "last"], [out])
            nodes.append(
                helper.make_node(reduce, *last, keepdims=0)
                if reduce
                else helper.make_node("Identity", *([name] for name in (out + "_all", out)))
            )
            outputs.append(helper.make_empty_tensor_value_info(out))
    graph = helper.make_graph(nodes, "integers", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def test_from_onnx() -> None:
    model = tvm_tile.compile(onnx_model(BYTES), "emulated")
    given = [array for dtype in BYTES for array in pairs(dtype) * len(onnx_followed(dtype))]
    results = iter(model(*given))
    wrong: list[str] = []
    for name, rows, array in wanted(BYTES):
        dtype, _, followed = name.partition(" ")
        if followed not in onnx_followed(dtype) or rows != list(BINARY):
            continue
        own = onnx_operators(dtype)
        array = array[[rows.index(row) for row in own]]
        if followed == "summed":
            array = array.astype(np.int32)
        found = np.asarray(next(results)).reshape(array.shape)
        wrong += differences(found, name, own, array)
    assert not wrong, "\n".join(wrong)


class Constants(torch.nn.Module):
    """Constants whose difference leaves their type, and one that C has no digits for."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        least = torch.tensor([-(2**31), 5], dtype=torch.int32)
        return (x >> 11) - 128, torch.minimum(y, least)


def test_constants_wrap_and_are_written_in_their_type() -> None:
    x, y = torch.arange(99, dtype=torch.uint8), torch.arange(-6, 6, dtype=torch.int32).view(6, 2)
    examples = {"example_inputs": (x, y), "cache": False}
    found = tvm_tile.compile(Constants(), "emulated", **examples)(x.numpy(), y.numpy())
    for one, wanted in zip(found, Constants()(x, y), strict=True):
        np.testing.assert_array_equal(one, wanted.numpy())
    kernels = tvm_tile.compile(Constants(), "nvidia/h200", **examples).report.kernels
    assert {kernel.rule for kernel in kernels} == {"elementwise"}
