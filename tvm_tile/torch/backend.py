"""``torch.compile(model, backend="tvm_tile")``: what PyTorch calls with each captured graph."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._ops import OpOverload

from tvm_tile.errors import OptionError
from tvm_tile.frontend.torch.decompose import (
    broken_down_by_us,
    decompositions,
    whole_operators,
)
from tvm_tile.frontend.torch.own_decompositions import own_decompositions
from tvm_tile.torch.compiler import GraphCompiler, Tell
from tvm_tile.torch.direct import unboxed
from tvm_tile.torch.options import BackendOptions
from tvm_tile.torch.report import GraphKind, GraphReport
from tvm_tile.torch.sizes import BoxedCall

LOG = logging.getLogger(__name__)

# By these PyTorch tells tensors that are written out in a model's code while it traces it.
_LITERALS = frozenset({torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default})
# PyTorch's own decompositions of these return no statistics that a gradient could use.
_FUSED_ATTENTION = "aten::_scaled_dot_product"


def tvm_tile(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    **others: Any,
) -> Callable[..., Any]:
    """The backend. Users name it: ``torch.compile(model, backend="tvm_tile", options={...})``.

    What the importer of PyTorch's operators knows is compiled, PyTorch runs the rest, and results
    are those of PyTorch: for inference and training, with weights as they are at each call, shared
    and not copied. Where nothing can be compiled PyTorch runs the model as if there were no
    backend; the logger ``tvm_tile.torch`` says what was compiled (INFO) and what failed (WARNING),
    and :func:`tvm_tile.torch.explain` tells it as data.

    Args:
        graph_module: a graph of Dynamo's.
        example_inputs: tensors without data, like those of a call.
        options: ``device`` and ``options``, as of :func:`tvm_tile.compile`, and the fields of
            :class:`tvm_tile.Options`. By default models on a GPU are compiled for that GPU, and
            models on the CPU are left to PyTorch, which is said once: the CPU is no device of ours.
            ``device="emulated"`` compiles these, too, for tests. ``freeze=True``, for inference,
            says that weights will stay as they are: they are compiled in, laid out as kernels read
            them best, norms folded, products joined; they are in memory twice. Each call compares
            their addresses and PyTorch's counts of writes to them, and if one has changed, they
            are read at each call from then on. What is written through ``.data`` is not counted,
            nor are statistics that norms in training mode update: that is not seen, so that no
            model is taken for one whose weights stay, though no gradients are wanted: adapters are
            merged into weights that way. By default PyTorch's own word for the same promise,
            ``torch._inductor.config.freezing``, holds here, too, where gradients are off. Graphs of
            open sizes read their weights.
        mode: mode of ``torch.compile``, which takes it instead of ``options``. ``"default"`` and
            ``"reduce-overhead"`` are the default options: launches are captured into CUDA graphs in
            both. ``"max-autotune"`` is ``topk=10``, measured on the GPU;
            ``"max-autotune-no-cudagraphs"`` captures nothing, besides.
        others: refused: there is nothing else that ``torch.compile`` passes.

    Returns:
        A function with the graph's inputs and outputs.

    Raises:
        OptionError: a mode or an option is unknown or out of its range.
        UnknownDeviceError: no device record has that name.
    """
    if others:
        raise OptionError(
            "the backend tvm_tile takes options and a mode only",
            ", ".join(f"{name}={value!r}" for name, value in others.items()),
            'leave it out, or say it by options, such as options={"topk": 10}',
        )
    return compiled(graph_module, example_inputs, BackendOptions.of(options, mode), _log)


def compiled(
    graph_module: fx.GraphModule, example_inputs: Sequence[Any], options: BackendOptions, tell: Tell
) -> Callable[..., Any]:
    """A graph of Dynamo's as a function; ``tell`` is given what became of its graphs."""
    tensors = [value for value in example_inputs if isinstance(value, torch.Tensor)]
    types = {tensor.device.type for tensor in tensors}
    device = options.device_for("cuda" if "cuda" in types else "cpu")
    if device is None:
        _say_once_that_nothing_is_compiled()
        tell(GraphReport(GraphKind.INFERENCE, (), (), _NO_DEVICE))
        return graph_module.forward
    place = torch.device("cpu") if device.is_emulated else torch.device("cuda", 0)
    given = [*tensors, *graph_module.parameters()]
    trains = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    held = [*graph_module.parameters(), *graph_module.buffers(), *example_inputs]
    captured = tuple(held) if _freezes(options.freeze) and not trains else ()
    plain: list[BoxedCall] = []
    known = len(example_inputs), captured, plain.append
    graphs = GraphCompiler(device, place, options.options, tell, *known)
    try:
        with own_decompositions(), nullcontext() if trains else whole_operators():
            whole: Callable[..., Any] = _autograd(graphs)(graph_module, example_inputs)
            return unboxed(plain[0]) if plain else whole
    except TorchDynamoException:  # Dynamo's own ways to begin anew
        raise
    except Exception as error:
        LOG.warning("PyTorch runs a graph that cannot be traced: %s", error)
        LOG.debug("its traceback", exc_info=error)
        first_line = str(error).strip().partition("\n")[0]
        why = f"it cannot be traced: {type(error).__name__}: {first_line}"
        tell(GraphReport(GraphKind.INFERENCE, (), (), why))
    return graph_module.forward


def _freezes(asked: bool | None) -> bool:
    """Whether weights are compiled in: as is asked, or as PyTorch's own backend would."""
    if asked is not None:
        return asked
    from torch._inductor import config

    return bool(config.freezing) and not torch.is_grad_enabled()


def _autograd(graphs: GraphCompiler) -> Callable[..., Any]:
    """AOTAutograd, which sees to gradients, views, aliases and what a model writes into."""
    return aot_autograd(
        fw_compiler=graphs.compiler(GraphKind.FORWARD),
        bw_compiler=graphs.compiler(GraphKind.BACKWARD),
        inference_compiler=graphs.compiler(GraphKind.INFERENCE),
        decompositions=dict(backend_decompositions()),
    )


@functools.cache
def backend_decompositions() -> Mapping[OpOverload, Any]:
    """Decompositions of all operators without a converter, for graphs before they are cut.

    Those are left out that would change which random numbers are drawn, or what is kept for
    gradients.
    """
    return {
        target: how
        for target, how in decompositions().items()
        if isinstance(target, OpOverload)
        and torch.Tag.nondeterministic_seeded not in target.tags
        and target not in broken_down_by_us() | _LITERALS
        and not target.name().startswith(_FUSED_ATTENTION)
    }


_NO_DEVICE = "no device is named, and none of its tensors is on a GPU that we know: PyTorch runs it"


@functools.cache
def _say_once_that_nothing_is_compiled() -> None:
    """Warn that nothing is compiled for a model on the CPU."""
    LOG.warning(
        'backend="tvm_tile": %s; options={"device": "emulated"} compiles it for tests', _NO_DEVICE
    )


def _log(report: GraphReport) -> None:
    """Log what became of a graph."""
    LOG.info("%s", report.render())
