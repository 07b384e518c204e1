"""Each kernel next to what NumPy makes of the same unscheduled function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm_ffi import StructuralKey

from tvm_tile.build import Builder
from tvm_tile.build.program import Program
from tvm_tile.device.device import Device
from tvm_tile.errors import VerificationError
from tvm_tile.graph.extract import extract
from tvm_tile.graph.functions import expressions_in
from tvm_tile.graph.open_extents import Symbol, far, top, variable
from tvm_tile.passes import STATEMENTS, given_name
from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.verification import Difference, KernelCheck
from tvm_tile.runtime.launch import load_functions
from tvm_tile.schedule.attention.listed import has_table
from tvm_tile.schedule.open_copy import OPEN_COPY
from tvm_tile.verify.arguments import (
    FunctionInput,
    drawn,
    moved,
    open_variables,
    parameters,
    poison,
)
from tvm_tile.verify.compare import Argument, Array, compare, is_float, tolerance
from tvm_tile.verify.model_inputs import places_in
from tvm_tile.verify.reference import NoReferenceError, References

_GUARD = 256  # elements behind each tensor, which must stay as they are
_NOTHING = Difference(0.0, 0, 0)
_OVERWRITTEN = Difference(np.inf, 1, 1, "memory behind the end of an output was written")


@dataclass(frozen=True, slots=True)
class Kernels:
    """A model's functions before and after they were scheduled, without its weights.

    Attributes:
        fused: the unscheduled functions by name.
        scheduled: the scheduled ones; these may take workspaces as further parameters.
        in_place: positions of the unscheduled functions' arguments that they read and overwrite.
        reports: reports of the scheduled functions.
        device: the device that they are made for.
        builder: builder that has built them, so that nothing is built twice.
        symbols: the model's open extents.
        places: places among the model's inputs, as found by :func:`places_in`.
    """

    fused: Mapping[str, tirx.PrimFunc]
    scheduled: Mapping[str, tirx.PrimFunc]
    in_place: Mapping[str, tuple[int, ...]]
    reports: tuple[KernelReport, ...]
    device: Device
    builder: Builder
    symbols: tuple[Symbol, ...] = ()
    places: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        fused: tvm.IRModule,
        scheduled: tvm.IRModule,
        reports: tuple[KernelReport, ...],
        device: Device,
        builder: Builder,
        symbols: tuple[Symbol, ...] = (),
    ) -> Kernels:
        """The functions of modules; the other arguments are attributes."""
        functions = _functions(fused), _functions(scheduled)
        in_place, places = _in_place(fused), places_in(fused)
        return cls(*functions, in_place, reports, device, builder, symbols, places)

    def wrong(self, known: dict[Any, VerificationError | None]) -> dict[str, VerificationError]:
        """Error of each wrong kernel, by the kernel's name.

        Args:
            known: errors found before, by the kernels' functions; new ones are added.

        Raises:
            VerificationError: one is that there is no other schedule for.
            DeviceError: the device is not present.
        """
        keys = {r.name: (r.name, StructuralKey(self.scheduled[r.name])) for r in self.reports}
        new = [report for report in self.reports if keys[report.name] not in known]
        for report, found in zip(new, self.check(new), strict=True):
            own = found.comparison
            known[keys[report.name]] = (
                None
                if own.is_right
                else VerificationError(
                    "a kernel must compute what NumPy makes of its function",
                    f"{own.wrong} of {own.size} elements differ, {own.example}",
                    "report it, with the model; another device's kernels may be right",
                )
            )
        wrong = {name: error for name, key in keys.items() if (error := known[key]) is not None}
        for report in self.reports:
            if report.name in wrong and report.rule == STATEMENTS:
                raise wrong[report.name]
        return wrong

    def check(self, reports: Sequence[KernelReport] | None = None) -> Iterator[KernelCheck]:
        """Run kernels on random inputs and compare their outputs.

        A kernel of open extents is run at the greatest values, where all of its elements are
        compared, then at lesser ones, where those are that it has written.

        Args:
            reports: reports of the kernels to be checked; by default all.

        Raises:
            DeviceError: the device is not present.
        """
        reports = self.reports if reports is None else tuple(reports)
        originals = {r.name: self.fused[given_name(r.name, r.rank)] for r in reports}
        references = References(originals)
        built = self.builder.build_functions({r.name: self.scheduled[r.name] for r in reports})
        for report in reports:
            program, func = built[report.name], originals[report.name]
            told = report.name, report.rule, report.tile, report.calls
            assert isinstance(program, Program), str(program)
            loaded = load_functions(program, self.device.name)
            places = self.in_place.get(given_name(report.name, report.rank), ())
            depth = _depth(func)
            sums = "tf32" if _multiplies_in_tf32(self.device) else "float32"
            worst = _NOTHING, 0.0
            # Masks and tables of random numbers would contradict each other.
            missing = "not compared: a table lists what its mask leaves" if has_table(func) else ""
            for number, at in enumerate([] if missing else self._extents(func)):
                whole = parameters(self.scheduled[report.name], extents=at)
                own = _Case(report.name, parameters(func, places, at), references, number == 0)
                try:
                    found = own.compared(loaded, whole, depth, sums)
                except NoReferenceError as error:
                    missing = str(error)
                    break
                worst = max(found, worst, key=lambda one: (one[0].wrong, one[0].error))
            compared, allowed = worst
            in_tvm = "" if missing else references.in_tvm.get(report.name, "")
            yield KernelCheck(*told, allowed, compared, missing, in_tvm)

    def _extents(self, func: tirx.PrimFunc) -> list[dict[str, int]]:
        """Values of a function's variables for open extents: the greatest, then lesser ones."""
        names = [variable(number, symbol.name) for number, symbol in enumerate(self.symbols)]
        used = open_variables(func)
        points = [top(self.symbols), *far(self.symbols)] if used else [()]
        if used <= set(names):
            return [dict(zip(names, point, strict=False)) for point in points]
        # A copy from or to a tensor of the greatest extents, with variables of its own.
        first, second = (list(param.ty.shape) for param in func.params)
        most = {
            str(own.name): int(whole)
            for one, other in ((first, second), (second, first))
            for own, whole in zip(one, other, strict=True)
            if not isinstance(own, tirx.IntImm)
        }
        return [most, {name: max(1, value // 3) for name, value in most.items()}]


@dataclass(frozen=True, slots=True)
class _Case:
    """One function with its parameters and its reference.

    Attributes:
        name: name of the function.
        parameters: parameters of the function.
        references: have it.
        is_whole: whether it must write all elements of its outputs.
    """

    name: str
    parameters: tuple[FunctionInput, ...]
    references: References
    is_whole: bool

    def compared(
        self, loaded: Any, whole: Sequence[FunctionInput], depth: int, sums: str
    ) -> tuple[Difference, float]:
        """The worst of its outputs, and what is allowed there."""
        rng = np.random.default_rng(0)
        given, wanted = self._drawn(rng)
        spaces = [np.full(p.shape, poison(p.dtype), p.dtype) for p in whole[len(given) :]]
        got = _run(loaded[self.name], [*given, *spaces], loaded.device)
        if got is None:
            return _OVERWRITTEN, 0.0
        if not self.is_whole:
            pairs = zip(got, wanted, strict=False)
            got = [np.where(_is_poison(own), other, own) for own, other in pairs]
        worst = _NOTHING, 0.0
        others: list[list[Array]] = []
        for at, parameter in enumerate(self.parameters):
            if np.array_equal(_bits(wanted[at]), _bits(given[at])) and not parameter.is_output:
                continue
            allowed = tolerance(parameter.dtype.name, depth, sums)
            found = compare(got[at], wanted[at], allowed)
            if not found.is_right:
                others = others or [
                    self.references(self.name, self._moved(given, rng)) for _ in range(3)
                ]
                found = compare(got[at], wanted[at], allowed, [other[at] for other in others])
            if (found.wrong, found.error) >= (worst[0].wrong, worst[0].error):
                worst = found, allowed
        return worst

    def _drawn(self, rng: np.random.Generator) -> tuple[list[Argument], list[Array]]:
        """Arguments, outputs poisoned, and what they become; inputs are positive where else most
        outputs would be undefined."""
        for positive in (False, True):
            given = [self._filled(p, rng, positive=positive) for p in self.parameters]
            wanted = self.references(self.name, given)
            pairs = zip(wanted, self.parameters, strict=True)
            floats = [a for a, p in pairs if p.is_output and is_float(p.dtype) and a.size]
            if all(np.isnan(array.astype(np.float64)).mean() < 0.5 for array in floats):
                break
        return given, wanted

    def _moved(self, given: Sequence[Argument], rng: np.random.Generator) -> list[Argument]:
        """The arguments, moved by roundings."""
        return [a if isinstance(a, int) else moved(a, rng) for a in given]

    def _filled(self, own: FunctionInput, rng: np.random.Generator, *, positive: bool) -> Argument:
        """An argument: random numbers for an input, a fill for an output."""
        if own.is_output:
            return np.full(own.shape, poison(own.dtype), own.dtype)
        return drawn(own, rng, positive=positive)


def _run(kernel: Any, arguments: Sequence[Argument], device: Any) -> list[Array] | None:
    """Arguments as a kernel leaves them; None where it wrote behind the end of one."""
    arrays = [argument for argument in arguments if not isinstance(argument, int)]
    ends = [np.full(_GUARD, poison(array.dtype), array.dtype) for array in arrays]
    memory = [
        tvm.runtime.tensor(np.concatenate([array.ravel(), end]), device)
        for array, end in zip(arrays, ends, strict=True)
    ]
    pairs = list(zip(memory, arrays, strict=True))
    views = [whole._create_view(array.shape) for whole, array in pairs]
    left = iter(views)
    given = [a if isinstance(a, int) else next(left) for a in arguments]
    kernel(*given)
    intact = all(
        np.array_equal(_bits(whole.numpy()[-_GUARD:]), _bits(end))
        for whole, end in zip(memory, ends, strict=True)
    )
    if not intact:
        return None
    return [np.asarray(a) if isinstance(a, int) else a.numpy() for a in given]


def _is_poison(array: Array) -> Array:
    """Elements that were not written."""
    found: Array = np.isnan(array) if is_float(array.dtype) else array == poison(array.dtype)
    return found


def _bits(argument: Argument) -> Array:
    """Bytes of an argument."""
    array = np.asarray(argument)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _depth(func: tirx.PrimFunc) -> int:
    """How many numbers are added up for one element, one sum behind the other counted apart."""
    if OPEN_COPY in (func.attrs or {}):
        return 1
    graph = extract(func)
    if graph is None:
        return 4096  # not known: as long sums as are common
    depth = 0
    for operator in graph.operators:
        extent = 1
        for axis in operator.reduce_axes:
            extent *= axis.extent
        depth += extent
    return max(1, depth)


def _multiplies_in_tf32(device: Device) -> bool:
    """Whether the device may multiply in TF32."""
    return any(i.in_dtype == "float32" for i in device.matrix_instructions)


def _functions(mod: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    """TensorIR functions of a module, by name."""
    named = ((str(var.name_hint), func) for var, func in mod.functions_items())
    return {name: func for name, func in named if isinstance(func, tirx.PrimFunc)}


def _in_place(mod: tvm.IRModule) -> Mapping[str, tuple[int, ...]]:
    """Function -> positions of the arguments that it overwrites though it reads them."""
    operator = tvm.ir.Op.get("relax.call_tir_inplace")
    calls = [call for call in expressions_in(mod, relax.Call) if call.op == operator]
    places = ([int(i) for i in call.attrs.inplace_indices if int(i) >= 0] for call in calls)
    names = (str(call.args[0].name_hint) for call in calls)
    return dict(zip(names, map(tuple, places), strict=True))
