"""Cocktailer's seven networks: loops, branches on data, recursion."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.suites.model_suite import network_case, numbers, read_source, read_workloads
from bench.workload import Case, Input, Workload

if TYPE_CHECKING:
    import torch

FILE = "cocktailer_models.json"
SOURCE = read_source(FILE)


def workloads() -> tuple[Workload, ...]:
    """Every network in float32, most of them with batch 1 and 64."""
    return read_workloads("control_flow", FILE)


def case(workload: Workload) -> Case:
    """The network with random weights, and its inputs.

    Control flow is Python's: eager PyTorch runs it; what traces or exports must unroll the
    loops and cannot have the rest.
    """
    module = _seeded_network(workload)
    # Without values there is no way through branches and recursion.
    follows_data = workload.name in ("seq2seq", "blockdrop", "skipnet", "rae")
    twin = _jax_twin(workload.name)
    return network_case(
        workload,
        module,
        _inputs(workload),
        counted_on="cpu" if follows_data else "meta",
        loop=None if twin is None else partial(twin, module),
    )


def vendor_module(workload: Workload) -> torch.nn.Module | None:
    """The LSTM as cuDNN's, with the same weights; None for the others."""
    if workload.name != "lstm":
        return None
    import torch

    from bench.suites.networks.lstm import vendor_last_state

    return vendor_last_state(_seeded_network(workload)).to(getattr(torch, workload.dtype))


def _seeded_network(workload: Workload) -> torch.nn.Module:
    from bench.suites.networks.seeded import seeded

    return seeded(lambda: _network(workload), gain=1.0)


def _network(workload: Workload) -> torch.nn.Module:
    size = workload.size
    match workload.name:
        case "lstm":
            from bench.suites.networks.lstm import LastState, StackedLSTM

            return LastState(StackedLSTM(size("layers"), size("hidden"), size("hidden")))
        case "nasrnn":
            from bench.suites.networks.nasrnn import NASRNN

            return NASRNN(size("hidden"))
        case "attention":
            from bench.suites.networks.kv_attention import KVAttention

            names = ("heads", "head_size", "start", "length")
            return KVAttention(*(size(name) for name in names))
        case "seq2seq":
            from bench.suites.networks.greedy_decoder import GreedyDecoder

            names = ("hidden", "vocabulary", "max_length")
            return GreedyDecoder(*(size(name) for name in names), workload.batch or 1)
        case "blockdrop":
            from bench.suites.networks.blockdrop import BlockDrop

            return BlockDrop(*(size(name) for name in ("width", "blocks", "classes")))
        case "skipnet":
            from bench.suites.networks.skipnet import SkipNet

            return SkipNet(size("width"), numbers(size("blocks")), size("gate"), size("classes"))
        case "rae":
            from bench.suites.networks.recursive_autoencoder import RecursiveAutoencoder

            return RecursiveAutoencoder(size("nodes"), size("hidden"))
        case name:
            raise KeyError(name)


def _inputs(workload: Workload) -> tuple[Input, ...]:
    size, batch, dtype = workload.size, workload.batch or 1, workload.dtype
    match workload.name:
        case "lstm" | "nasrnn":
            return (Input((size("steps"), batch, size("hidden")), dtype),)
        case "attention":
            lengths = (1, size("start"), size("start"))
            heads = batch, size("heads")
            return tuple(Input((*heads, n, size("head_size")), dtype) for n in lengths)
        case "seq2seq":
            return (Input((batch, size("hidden")), dtype),) * 2
        case "rae":
            return (Input((size("nodes"), size("hidden")), dtype),)
        case _:
            return (Input((batch, 3, size("image"), size("image")), dtype),)


def _jax_twin(name: str) -> Callable[[Any], Callable[..., Any]] | None:
    """What makes a network of this name in JAX; None where there is nothing."""
    match name:
        case "lstm":
            from bench.suites.networks.lstm import jax_last_state

            return jax_last_state
        case "nasrnn":
            from bench.suites.networks.nasrnn import jax_nasrnn

            return jax_nasrnn
        case "attention":
            from bench.suites.networks.kv_attention import jax_kv_attention

            return jax_kv_attention
        case "seq2seq":
            from bench.suites.networks.greedy_decoder import jax_greedy_decoder

            return jax_greedy_decoder
        case _:
            return None
