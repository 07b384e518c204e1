"""What the model suites share: workloads from a data file, and a network as a case."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.workload import Case, Input, Workload

if TYPE_CHECKING:
    import torch

TOLERANCES = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 1e-1}


def read_source(file: str) -> str:
    """Where the data file's workloads come from."""
    return str(_read(file)["source"])


def read_workloads(suite: str, file: str) -> tuple[Workload, ...]:
    """The data file's models, each with each of its batch sizes and of the file's dtypes."""
    data = _read(file)
    return tuple(
        Workload(
            suite,
            model["name"],
            model["family"],
            dtype,
            batch,
            tuple(sorted(model["sizes"].items())),
        )
        for model in data["models"]
        for dtype in data["dtypes"]
        for batch in model["batches"]
    )


def numbers(text: str) -> tuple[int, ...]:
    """``"4 6 8"`` as integers: a size that is a list."""
    return tuple(int(word) for word in text.split())


def network_case(
    workload: Workload,
    module: torch.nn.Module,
    inputs: tuple[Input, ...],
    *,
    counted_on: str = "meta",
    loop: Callable[[], Callable[..., Any]] | None = None,
) -> Case:
    """A network, in float32, as a case in the workload's dtype.

    Args:
        workload: what it is a case of.
        module: the network with its weights.
        inputs: of its ``forward``.
        counted_on: ``"cpu"`` for control flow on data, which needs values to be followed.
        loop: see :class:`bench.workload.Case`.
    """
    import torch

    module = module.to(getattr(torch, workload.dtype))
    flops, traffic = count(module, inputs, counted_on)
    return Case(
        module,
        inputs,
        flops,
        traffic,
        "float32",
        TOLERANCES[workload.dtype],
        is_operator=False,
        loop=loop,
    )


def count(
    module: torch.nn.Module, inputs: tuple[Input, ...], device: str = "meta"
) -> tuple[float, float]:
    """Operations of products and convolutions, and bytes of parameters, inputs and outputs.

    Parameters count when they take part; of an embedding's table only the rows looked up.
    """
    import torch

    from bench.suites.operation_counter import OperationCounter

    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    moved = {name: tensor.to(device) for name, tensor in state.items()}
    counter = OperationCounter(moved.values())
    with torch.no_grad(), counter:
        outputs = torch.func.functional_call(
            module, moved, tuple(_draw(each, device) for each in inputs)
        )
    tensors = outputs if isinstance(outputs, tuple) else (outputs,)
    ends = sum(tensor.nbytes for tensor in tensors) + sum(each.bytes for each in inputs)
    return float(counter.flops), float(counter.bytes_read + ends)


def _draw(what: Input, device: str) -> torch.Tensor:
    import torch

    dtype = getattr(torch, what.dtype)
    if what.below:
        return torch.zeros(what.shape, dtype=dtype, device=device)
    generator = torch.Generator().manual_seed(0) if device != "meta" else None
    return torch.randn(what.shape, dtype=dtype, device=device, generator=generator)


def _read(file: str) -> dict[str, Any]:
    text = (Path(__file__).parent / "data" / file).read_text()
    return dict(json.loads(text))
