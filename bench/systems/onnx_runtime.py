"""ONNX Runtime on its CUDA execution provider, of models that ``torch.onnx`` exports.

Inputs and outputs stay where they are (IO binding), and a run is a CUDA graph wherever ONNX Runtime
can capture one: it cannot where an operator is left to the CPU. ONNX Runtime works on a stream of
its own, which waits for torch's, and torch's for it, so that torch's events see all of its work.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from bench.systems.system import NotSupported, Prepared, Session
from bench.systems.torch_eager import no_gpu, peer_module
from bench.workload import Case, Workload

_OPSET = 18
_TYPES = {"float32": "FLOAT", "float64": "DOUBLE"}  # torch's name -> ONNX's, where it differs


class OnnxRuntime:
    """A model as ONNX Runtime optimizes it.

    Attributes:
        provider: what runs it.
    """

    name = "onnxruntime"
    variant = ""
    preload: tuple[str, ...] = ("torch",)  # ONNX Runtime has threads, which forking would lose
    provider: ClassVar[str] = "CUDAExecutionProvider"

    def missing(self) -> str:
        """It needs a GPU, and an ONNX Runtime that was built for it."""
        try:
            import onnx  # noqa: F401
            import onnxruntime
        except ImportError as error:
            return str(error)
        if self.provider not in onnxruntime.get_available_providers():
            return f"this ONNX Runtime has no {self.provider}"
        return no_gpu()

    def version(self) -> str:
        """ONNX Runtime's."""
        import onnxruntime

        return f"onnxruntime {onnxruntime.__version__}"

    def warm_up(self) -> None:
        """Its imports."""
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Export and optimize; what cannot be captured runs without a CUDA graph."""
        if case.loop is not None:
            raise NotSupported("tracing a module unrolls its loops")
        with session.gpu:
            inputs = session.draw()
            module = session.place(peer_module(workload, case))
            model, note = _exported(module, inputs), ""
            begin = partial(_Run.begin, module)
            try:
                runtime = self._optimized(model, inputs[0], with_graph=True)
                begin(runtime, inputs)()
            except Exception as error:  # ONNX Runtime's own, of many kinds
                reason = str(error).partition("\n")[0]
                note = f"without a CUDA graph: {reason}"
                runtime = self._optimized(model, inputs[0], with_graph=False)
        return Prepared(start=partial(begin, runtime, graph=1), note=note)

    def _optimized(self, model: bytes, sample: Any, *, with_graph: bool) -> _Runtime:
        """The model, for the device that ``sample`` is on."""
        import onnxruntime
        import torch

        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4
        stream, given = None, {}
        if sample.is_cuda:
            stream = torch.cuda.Stream(sample.device)
            given = {
                "device_id": str(sample.device.index or 0),
                "user_compute_stream": str(stream.cuda_stream),
                "enable_cuda_graph": str(int(with_graph)),
                "use_tf32": "0",  # the same accuracy for all
            }
        providers = [(self.provider, given)]
        made = onnxruntime.InferenceSession(model, settings, providers=providers)
        return _Runtime(made, stream)


@dataclass(frozen=True, slots=True)
class _Runtime:
    """An optimized model, and the stream that it works on; ``None`` on the CPU."""

    session: Any
    stream: Any


@dataclass(frozen=True, slots=True)
class _Run:
    """A run on tensors that stay where they are."""

    runtime: _Runtime
    binding: Any
    options: Any
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    structure: Any

    @classmethod
    def begin(cls, module: Any, runtime: _Runtime, inputs: Sequence[Any], graph: int = 0) -> _Run:
        """Bind inputs, and outputs like those of ``module``; ``graph`` numbers what is captured."""
        import onnxruntime
        import torch
        from torch.utils import _pytree

        with torch.inference_mode():
            wanted, structure = _pytree.tree_flatten(module(*inputs))
        inputs = [value.contiguous() for value in inputs]
        outputs = [torch.full_like(value, 0).contiguous() for value in wanted]
        binding = runtime.session.io_binding()
        given = dict(zip(_names("x", inputs), inputs, strict=True))
        for own in runtime.session.get_inputs():
            binding.bind_input(own.name, *_described(given[own.name]))
        for name, value in zip(_names("y", outputs), outputs, strict=True):
            binding.bind_output(name, *_described(value))
        options = onnxruntime.RunOptions()
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        options.add_run_config_entry("gpu_graph_id", str(graph))
        return cls(runtime, binding, options, inputs, outputs, structure)

    def __call__(self) -> Any:
        """Enqueue one run on torch's stream; the outputs are the same tensors each time."""
        import torch
        from torch.utils import _pytree

        own = self.runtime.stream
        if own is not None:
            own.wait_stream(torch.cuda.current_stream())
        with nullcontext() if own is None else torch.cuda.stream(own):
            self.runtime.session.run_with_iobinding(self.binding, self.options)
        if own is not None:
            torch.cuda.current_stream().wait_stream(own)
        return _pytree.tree_unflatten(self.outputs, self.structure)


def _exported(module: Any, inputs: Sequence[Any]) -> bytes:
    """A module as an ONNX file.

    Raises:
        NotSupported: ``torch.onnx`` cannot export it.
    """
    import torch
    from torch.utils import _pytree

    file = io.BytesIO()
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        results = _pytree.tree_leaves(module(*inputs))
        try:
            torch.onnx.export(
                module,
                tuple(inputs),
                file,
                dynamo=False,
                opset_version=_OPSET,
                input_names=_names("x", inputs),
                output_names=_names("y", results),
            )
        except Exception as error:  # the exporter raises whatever comes up
            reason = str(error).partition("\n")[0]
            raise NotSupported(f"torch.onnx cannot export it: {reason}") from error
    return file.getvalue()


def _names(letter: str, values: Sequence[Any]) -> list[str]:
    return [f"{letter}{number}" for number in range(len(values))]


def _described(value: Any) -> tuple[str, int, int, tuple[int, ...], int]:
    """Where a tensor is and what, as bindings want it: device, element type, shape and address."""
    import onnx

    dtype = str(value.dtype).removeprefix("torch.")
    kind = onnx.TensorProto.DataType.Value(_TYPES.get(dtype, dtype.upper()))
    return value.device.type, value.device.index or 0, kind, tuple(value.shape), value.data_ptr()
