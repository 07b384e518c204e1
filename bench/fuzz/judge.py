"""One graph in this process: export, compile, run, compare."""

from __future__ import annotations

import random
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.fuzz import backend_door, onnx_door, torch_door
from bench.fuzz.graph import Graph, is_of_integers
from bench.fuzz.open_extents import Range, ranges_of
from tvm_tile.verify.compare import compare

# What inputs are off by in the references that roundings have moved: a few of the type's own.
_AMPLITUDE = {"float32": 2e-6, "tf32": 4e-3, "float16": 4e-3, "bfloat16": 3e-2}
# How far outputs may be off, relative to their size: behind sums of a few hundred numbers.
_ALLOWED = {"float32": 2e-5, "tf32": 1e-2, "float16": 1e-2, "bfloat16": 6e-2}
# Integers and truths of a tensor, one in so many, may be off where one rounding decides: a sum that
# rounds to zero is false, and 1.999 is cut off to 1. Of halves, one more may.
_JUMPS_AMONG = 500
_SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0)
_ROOT = Path(__file__).parents[2]
SEEDS = (2, 3)  # of the numbers that a model is called with
STATUSES = ("right", "compiled", "refused", "wrong", "error", "crash", "invalid")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a graph is compiled and run.

    Attributes:
        device: as in ``tvm_tile.compile``; the switches after it are those of ``Forced``.
        run: whether it is run, not only compiled.
        special: whether inputs with NaN and infinities are tried, too.
        door: ``"torch"`` for an exported program, ``"onnx"`` for an ONNX model, ``"backend"`` for
            a module behind ``torch.compile``; ``"both"`` for the first two, one after the other.
        open: extents that are open; the door is then a module's.
    """

    device: str
    weld: bool = True
    coschedule: bool = True
    tf32: bool = False
    topk: int = 1
    run: bool = True
    special: bool = False
    door: str = "torch"
    open: tuple[Range, ...] = ()

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Settings:
        """The settings whose fields are these, as JSON keeps them."""
        return cls(**{**data, "open": tuple(Range(**one) for one in data.get("open", ()))})


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a graph went.

    Attributes:
        status: ``right``; ``compiled``, but not run; ``refused`` by an error of
            ``tvm_tile.errors``; ``wrong`` numbers; ``error`` of another type; ``crash`` of the
            process or no end; ``invalid`` where PyTorch itself does not take it.
        reason: refused, wrong or failed why: what is the same where the culprit is.
        detail: this graph's own.
    """

    status: str
    reason: str = ""
    detail: str = ""

    @property
    def kind(self) -> tuple[str, str]:
        """What stays the same while a graph shrinks."""
        return self.status, self.reason.partition(":")[0]


def settings_of(seed: int, device: str, *, run: bool, is_open: bool = False) -> Settings:
    """The switches of a seed."""
    rng = random.Random(seed + 1)
    gpu = device != "emulated"
    behind_torch = run and is_of_integers(seed) and rng.random() < 0.3
    return Settings(
        device,
        weld=rng.random() < 0.8,
        coschedule=rng.random() < 0.7,
        tf32=gpu and rng.random() < 0.2,
        topk=3 if gpu and run and rng.random() < 0.1 else 1,
        run=run,
        special=run and rng.random() < 0.25,
        door="open" if is_open else "backend" if behind_torch else rng.choice(("torch", "onnx")),
        open=ranges_of(seed) if is_open else (),
    )


def dtype_of(seed: int, device: str) -> str:
    """The floating-point type of a seed's graph: the emulated device has float32 only."""
    if device == "emulated":
        return "float32"
    return random.Random(seed + 2).choice(("float16", "float16", "bfloat16", "float32"))


def judge(graph: Graph, settings: Settings) -> Verdict:
    """Compile a graph and compare what it computes."""
    from tvm_tile.errors import TileError

    try:
        drawn = torch_door.draw(graph, 1)
        exported = onnx_door.exported if settings.door == "onnx" else torch_door.exported
        program = exported(graph, drawn)
        for seed in SEEDS:  # some numbers may lead an index out of its tensor
            torch_door.run(graph, torch_door.draw(graph, seed), torch.float64)
    except Exception as error:
        return Verdict("invalid", f"{type(error).__name__}: {first_line(error)}")
    try:
        if settings.door == "backend":
            model = backend_door.compiled(graph, options_of(settings), drawn)
        else:
            model = compiled(program, settings)
    except TileError as error:
        # What asks to be reported is a mistake of ours.
        status = "error" if "report it" in error.remedy else "refused"
        return Verdict(status, refusal(error), str(error)[:2000])
    except Exception as error:
        return Verdict("error", place(error), trace(error))
    if not settings.run:
        return Verdict("compiled")
    try:
        wrong = _wrong(graph, model, settings)
    except TileError as error:
        return Verdict("error", f"call: {refusal(error)}", str(error)[:2000])
    except Exception as error:
        return Verdict("error", place(error), trace(error))
    if not wrong:
        return Verdict("right")
    if settings.door == "backend":
        return Verdict("wrong", "behind torch.compile", wrong)
    rules = " ".join(sorted({f"{k.rule}" for k in model.report.kernels}))
    if settings.door == "onnx":
        if any("<<" in call.text or ">>" in call.text for call in graph.calls):
            # The exporter makes casts of powers of floats of them, which often do not fit.
            return Verdict("invalid", "casts that do not fit, which ONNX leaves undefined")
        try:
            if _is_exporters(graph, program, wrong):
                return Verdict("invalid", "the exporter's ONNX model is not the module")
        except Exception as error:
            return Verdict("invalid", f"ONNX Runtime cannot run it: {first_line(error)}", wrong)
    if wrong.startswith("special"):
        return Verdict("wrong", f"special values: rules {rules}", wrong)
    return Verdict("wrong", f"{_culprit(graph, program)}: rules {rules}", wrong)


def compiled(program: Any, settings: Settings, **given: Any) -> Any:
    """The compiled model; ``given`` are further arguments of ``tvm_tile.compile``."""
    import tvm_tile

    return tvm_tile.compile(program, **options_of(settings), **given)


def options_of(settings: Settings) -> dict[str, Any]:
    """The device and the options, as ``tvm_tile.compile`` and the backend take them by name."""
    from tvm_tile.stages.forced import Forced

    switches = {name: getattr(settings, name) for name in ("weld", "coschedule", "tf32", "topk")}
    forced = Forced(**switches, cache=False, parallel_builds=1)
    return {"device": settings.device, "options": forced}


def _wrong(graph: Graph, model: Any, settings: Settings) -> str:
    """What is wrong with a compiled graph's outputs, by any of several calls."""
    drawn = [torch_door.draw(graph, seed) for seed in SEEDS]
    nothing = {name: poisoned(tensor) for name, tensor in drawn[0].items()}
    outputs_of(graph, model, nothing)  # so that memory which is used again holds NaN
    first = outputs_of(graph, model, drawn[0])
    given = [tensor.clone() for tensor in torch_door.inputs_of(graph, drawn[1])]
    kept = [output.clone() for output in first]
    second = outputs_of(graph, model, drawn[1])
    for output, before in zip(first, kept, strict=True):
        if not same(output, before):
            return "an output changed when the model was called again"
    for tensor, before in zip(torch_door.inputs_of(graph, drawn[1]), given, strict=True):
        if not same(tensor, before):
            return "an input changed"
    rounding = rounding_of(graph, settings)
    wrong = against_references(graph, drawn[1], second, rounding)
    if wrong or not settings.special or not has_specials(graph):
        return wrong
    strange = with_specials(graph, drawn[0])
    wrong = against_references(graph, strange, outputs_of(graph, model, strange), rounding)
    return f"special values: {wrong}" if wrong else ""


def outputs_of(graph: Graph, model: Any, tensors: torch_door.Tensors) -> list[torch.Tensor]:
    """What a compiled model makes of a graph's inputs."""
    outputs = model(*(tensors[signature.name] for signature in model.inputs))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [_tensor(output) for output in outputs]


def _tensor(output: Any) -> torch.Tensor:
    """An output as PyTorch's; of a model without inputs it is an array of NumPy's."""
    if isinstance(output, torch.Tensor):
        return output
    if output.dtype.name == "bfloat16":
        return torch.as_tensor(output.astype(np.float32)).bfloat16()
    return torch.as_tensor(output)


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether elements are equal; NaN are."""
    return (
        torch.equal(left.nan_to_num(7), right.nan_to_num(7))
        if left.is_floating_point()
        else torch.equal(left, right)
    )


def poisoned(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of NaN, where the type has it."""
    return torch.full_like(tensor, torch.nan) if tensor.is_floating_point() else tensor


def has_specials(graph: Graph) -> bool:
    """Whether NaN and infinities have results that are the same wherever they are defined.

    Others are integers made of them, the sign of a NaN (``copysign``, ``signbit``; ``sign``, of
    which PyTorch and ONNX Runtime make different numbers), the order of several (``topk``), and
    zero times an infinity where PyTorch has it by one method of several: weights of a transposed
    convolution that are inputs, neighbours without a share in a resize, keys that a causal mask
    hides, statistics and weights of a batch or instance norm that are inputs.
    """
    unlike = (
        r"torch\.int|copysign|signbit|torch\.sign\(|topk|interpolate|is_causal=True"
        r"|conv_transpose\dd\(\w+, x"
        r"|(batch|instance)_norm\(\w+, .*\bx\d"
    )
    return not any(re.search(unlike, call.text) for call in graph.calls)


def with_specials(graph: Graph, tensors: torch_door.Tensors) -> dict[str, torch.Tensor]:
    """The tensors, some elements of inputs NaN, infinities and zeros with a sign."""
    rng = random.Random(5)
    special = dict(tensors)
    for tensor in graph.inputs:
        value = special[tensor.name].clone()
        if value.is_floating_point() and value.numel():
            for _ in range(1 + value.numel() // 50):
                at = tuple(rng.randrange(extent) for extent in value.shape)
                value[at] = rng.choice(_SPECIAL)
        special[tensor.name] = value
    return special


def rounding_of(graph: Graph, settings: Settings) -> str:
    """The type whose roundings a graph's outputs may show."""
    return "tf32" if settings.tf32 and graph.dtype == "float32" else graph.dtype


def against_references(
    graph: Graph,
    tensors: torch_door.Tensors,
    outputs: Sequence[torch.Tensor],
    rounding: str,
) -> str:
    """What is wrong with outputs of a graph in its own type; empty where nothing is.

    The references are PyTorch in float64, from these inputs, from inputs that are off by roundings
    and with roundings before each operator, and PyTorch in the graph's own type.
    """
    wanted = torch_door.run(graph, tensors, torch.float64)
    others = [
        torch_door.run(graph, _moved(tensors, seed, _AMPLITUDE[rounding]), torch.float64)
        for seed in (1, 2)
    ]
    others += [torch_door.run_rounded(graph, tensors, _AMPLITUDE[rounding], s) for s in (1, 2)]
    own = getattr(torch, graph.dtype)
    is_half = own != torch.float32
    try:
        others.append(torch_door.run(graph, tensors, own))
        dtypes = [output.dtype for output in others[-1]]
    except RuntimeError:  # PyTorch's CPU lacks some operators in halves
        dtypes = _own_dtypes(graph, wanted)
    if len(outputs) != len(wanted):
        return f"{len(outputs)} outputs instead of {len(wanted)}"
    for at, (output, dtype) in enumerate(zip(outputs, dtypes, strict=True)):
        if output.dtype != dtype:
            return f"output {at}: {output.dtype} instead of {dtype}"
        references = [_array(other[at]) for other in others]
        if output.shape != wanted[at].shape:
            return f"output {at}: {tuple(output.shape)} instead of {tuple(wanted[at].shape)}"
        found = compare(_array(output), _array(wanted[at]), _ALLOWED[rounding], references)
        is_exact = dtype.is_floating_point or graph.is_exact
        spared = 0 if is_exact else found.size // _JUMPS_AMONG + is_half
        if found.wrong > spared:
            return f"output {at}: {found.wrong} of {found.size} elements, {found.example}"
    return ""


def _own_dtypes(graph: Graph, wanted: Sequence[torch.Tensor]) -> list[torch.dtype]:
    """The types of a graph's outputs in its own type, which ``wanted`` has in float64."""
    own = getattr(torch, graph.dtype)
    return [own if output.dtype == torch.float64 else output.dtype for output in wanted]


def _moved(tensors: torch_door.Tensors, seed: int, amplitude: float) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor.double()
        * (1 + amplitude * torch.randn(tensor.shape, generator=generator).double())
        if tensor.is_floating_point()
        else tensor
        for name, tensor in tensors.items()
    }


def _array(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    return tensor.double().numpy() if tensor.is_floating_point() else tensor.numpy()


def _is_exporters(graph: Graph, model: Any, wrong: str) -> bool:
    """Whether ONNX Runtime, too, finds other numbers than PyTorch.

    It has few operators in bfloat16: there the exporter is asked for the same graph in float32,
    unless the outputs of its model are said to be no bfloat16.
    """
    wanted = torch_door.run(graph, torch_door.draw(graph, 1), torch.float64)
    own = [str(dtype).removeprefix("torch.") for dtype in _own_dtypes(graph, wanted)]
    if onnx_door.dtypes(model) != own:
        return True
    if graph.dtype == "bfloat16":
        graph = replace(graph, dtype="float32")
        model = onnx_door.exported(graph, torch_door.draw(graph, 1))
    drawn = torch_door.draw(graph, 3)
    if wrong.startswith("special"):
        drawn = with_specials(graph, torch_door.draw(graph, 2))
    return bool(against_references(graph, drawn, onnx_door.run(model, drawn), graph.dtype))


def _culprit(graph: Graph, program: Any) -> str:
    """Whether the imported model's loops are wrong on the CPU, too: then its import is."""
    from bench.cpu_build import run_on_cpu
    from tvm_tile.frontend import import_model

    try:
        imported = import_model(program)
        drawn = torch_door.draw(graph, 3)
        given = [drawn[signature.name].contiguous().numpy() for signature in imported.inputs]
        found = [torch.as_tensor(array) for array in run_on_cpu(imported.mod, given)]
        wrong = against_references(graph, drawn, found, graph.dtype)
    except Exception as error:
        return f"CPU build fails ({type(error).__name__})"
    return "import" if wrong else "kernels"


def refusal(error: Any) -> str:
    current = str(error.current).splitlines() or [""]
    return f"{type(error).__name__}: {error.requirement}: {current[0][:160]}"


def trace(error: BaseException) -> str:
    """The end of an error's traceback, with this project's files as they are called within it."""
    return _from_root("".join(traceback.format_exception(error)))[-3000:]


def _from_root(text: str) -> str:
    return text.replace(f"{_ROOT}/", "")


def place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "tvm_tile/" in f.filename] or list(frames)
    named = _from_root(own[-1].filename.rpartition("tvm_tile/")[2]) if own else "?"
    where = f"{named}:{own[-1].name}" if own else named
    return f"{type(error).__name__} in {where}: {first_line(error)}"


def first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    return lines[0][:160]
