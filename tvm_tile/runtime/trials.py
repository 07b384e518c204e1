"""Run built candidates of one function on random inputs: are they right, and how fast."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_tile.build.program import Program
from tvm_tile.report.trial import Trial
from tvm_tile.runtime.arrays import numpy_dtype
from tvm_tile.runtime.drivers.timing import summarize
from tvm_tile.runtime.launch import load_functions

# Several times the largest second-level cache there is: each run finds its inputs in memory, as
# the cost model assumes and the benchmark measures.
FLUSH_BYTES = 256 << 20
_WARM_UPS = 2
_FEWEST, _MOST = 3, 15
_TARGET_S = 0.1
# Drawing is slower than copying: larger inputs repeat. A prime, so that no row repeats another.
_DRAWN = 1_000_003
_CHUNK = 1 << 22


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a function that is called destination-style.

    Attributes:
        shape: its extents.
        dtype: type of its elements, by TVM's name.
        is_output: whether the function writes it.
        settle: function that makes of random values what the function may be given.
    """

    shape: tuple[int, ...]
    dtype: str
    is_output: bool
    settle: Callable[[np.ndarray], np.ndarray] | None = None


@dataclass(frozen=True, slots=True)
class Trials:
    """Outcome of running a function's candidates.

    Attributes:
        ran: those that ran, in the model's order.
        error: message of the last that failed; empty when all ran.
    """

    ran: tuple[Trial, ...]
    error: str


def can_be_drawn(arguments: Sequence[Argument]) -> bool:
    """Whether NumPy knows all of the dtypes."""
    return all(numpy_dtype(argument.dtype) is not None for argument in arguments)


def run_trials(
    programs: Sequence[tuple[int, str, Program]],
    arguments: Sequence[Argument],
    device_name: str,
) -> Trials:
    """Run and time candidates, one after another.

    Args:
        programs: rank, symbol and program of each candidate, best first.
        arguments: arguments of the function; each candidate gets the same random values.
        device_name: name of the device, for messages.
    """
    generator = np.random.default_rng(0)
    values = [drawn(generator, argument) for argument in arguments]
    ran: list[Trial] = []
    expected: list[np.ndarray] | None = None
    error = ""
    for rank, name, program in programs:
        try:
            outputs, seconds = _run(program, name, arguments, values, device_name)
        except Exception as failure:  # drivers, TVM and OpenCL raise what they like
            error = f"{type(failure).__name__}: {failure}"
            continue
        expected = outputs if expected is None else expected
        pairs = zip(outputs, expected, strict=True)
        worst = max((relative_difference(*pair) for pair in pairs), default=0.0)
        ran.append(Trial(rank, seconds, worst))
    return Trials(tuple(ran), error)


def _run(
    program: Program,
    name: str,
    arguments: Sequence[Argument],
    values: Sequence[np.ndarray],
    device_name: str,
) -> tuple[list[np.ndarray], float]:
    """The outputs of a first run, and the median seconds of further ones."""
    import tvm

    functions = load_functions(program, device_name)
    tensors = tensors_of(arguments, values, functions.device)
    functions[name](*tensors)
    outputs = outputs_of(arguments, tensors)
    on_cpu = functions.device == tvm.cpu()

    def timed(repeat: int) -> list[float]:
        # Between two events of the device around each run; on the CPU, by the clock.
        evaluate: Callable[..., Any] = functions.module.time_evaluator(
            name,
            functions.device,
            number=1,
            repeat=repeat,
            cache_flush_bytes=0 if on_cpu else FLUSH_BYTES,
        )
        return [float(sample) for sample in evaluate(*tensors).results]

    first = timed(_WARM_UPS)[-1]
    count = min(max(int(_TARGET_S / max(first, 1e-9)), _FEWEST), _MOST)
    return outputs, summarize(timed(count)).median_s


def tensors_of(
    arguments: Sequence[Argument], values: Sequence[np.ndarray], device: Any
) -> list[Any]:
    """TVM's tensors on one of its devices, of the values of inputs.

    Outputs begin as NaN: an element that no thread writes is found.
    """
    import tvm

    pairs = zip(arguments, values, strict=True)
    return [tvm.runtime.tensor(_poisoned(v) if a.is_output else v, device) for a, v in pairs]


def outputs_of(arguments: Sequence[Argument], tensors: Sequence[Any]) -> list[np.ndarray]:
    """What the outputs among a call's tensors hold."""
    pairs = zip(arguments, tensors, strict=True)
    return [tensor.numpy() for argument, tensor in pairs if argument.is_output]


def drawn(generator: np.random.Generator, argument: Argument) -> np.ndarray:
    """Random numbers for an argument."""
    dtype = numpy_dtype(argument.dtype)
    size = math.prod(argument.shape)
    count = min(size, _DRAWN)
    # NumPy does not count ml_dtypes' numbers among its floating-point numbers.
    if "float" in argument.dtype:
        values = generator.standard_normal(count, np.float32).astype(dtype)
    else:
        # 0 and 1 are in range whatever the integers mean: labels, token numbers, masks.
        values = generator.integers(0, 2, count).astype(dtype)
    found = np.resize(values, argument.shape)
    return found if argument.settle is None else argument.settle(found)


def _poisoned(value: np.ndarray) -> np.ndarray:
    """A fill for an output that no kernel is likely to make."""
    if value.dtype.kind in "biu":
        largest = 1 if value.dtype.kind == "b" else np.iinfo(value.dtype).max - 7
        return np.full_like(value, largest)
    return np.full_like(value, np.nan)


def relative_difference(got: np.ndarray, wanted: np.ndarray) -> float:
    """Norm of the difference over norm of ``wanted``; NaN and infinities must agree.

    Returns:
        0 for equal arrays; infinite where one has NaN or an infinity and the other has not.
    """
    difference = scale = 0.0
    flat = got.reshape(-1), wanted.reshape(-1)
    # In pieces: in double precision a whole output can be large.
    for start in range(0, flat[0].size, _CHUNK):
        g, w = (part[start : start + _CHUNK].astype(np.float64) for part in flat)
        finite = np.isfinite(w)
        if not np.array_equal(g[~finite], w[~finite], equal_nan=True):
            return math.inf
        g, w = g[finite], w[finite]
        if not np.isfinite(g).all():
            return math.inf
        difference += float(np.square(g - w).sum())
        scale += float(np.square(w).sum())
    return math.sqrt(difference / scale) if scale > 0 else math.sqrt(difference)
