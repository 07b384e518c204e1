"""Whole networks: Welder's ten, ResNet-50 and ShuffleNet V2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.suites.model_suite import network_case, numbers, read_source, read_workloads
from bench.workload import Case, Input, Workload

if TYPE_CHECKING:
    import torch

FILE = "welder_models.json"
SOURCE = read_source(FILE)
# What they spend on products is little beside what their activations cost to move.
MEMORY_BOUND = (
    "mobilenet_v2",
    "mobilevit_s",
    "nafnet",
    "bsrn",
    "restormer",
    "nerf",
    "swin_tiny",
)


def workloads() -> tuple[Workload, ...]:
    """Every network in float32 and float16, most of them with batch 1 and 64."""
    return read_workloads("models", FILE)


def case(workload: Workload) -> Case:
    """The network with random weights, and its inputs."""
    from bench.suites.networks.seeded import seeded

    # What libraries build comes with weights in range, and so do networks that normalize.
    gain = 1.0 if workload.name in ("bsrn", "nerf", "shufflenet_v2") else None
    module = seeded(lambda: _network(workload), gain=gain)
    return network_case(workload, module, (_input(workload),))


def _network(workload: Workload) -> torch.nn.Module:
    size = workload.size
    match workload.name:
        case "bert_base":
            from bench.suites.networks.bert import Bert

            names = ("layers", "hidden", "heads", "ffn", "vocabulary")
            return Bert(*(size(name) for name in names))
        case "conformer":
            from bench.suites.networks.conformer import Conformer

            names = ("layers", "width", "heads", "ffn", "kernel")
            return Conformer(*(size(name) for name in names))
        case "nafnet":
            from bench.suites.networks.nafnet import NAFNet

            levels = numbers(size("encoder")), numbers(size("decoder"))
            return NAFNet(size("width"), size("middle"), *levels)
        case "bsrn":
            from bench.suites.networks.bsrn import BSRN

            return BSRN(size("width"), size("blocks"), size("upscale"))
        case "restormer":
            from bench.suites.networks.restormer import Restormer

            blocks, heads = numbers(size("blocks")), numbers(size("heads"))
            expansion = float(size("expansion"))
            return Restormer(size("width"), blocks, size("refinement"), heads, expansion)
        case "nerf":
            from bench.suites.networks.nerf import NeRF

            return NeRF(*(size(name) for name in ("inputs", "hidden", "layers", "outputs")))
        case "shufflenet_v2":
            from bench.suites.networks.shufflenet import ShuffleNetV2

            stages = numbers(size("repeats")), numbers(size("channels"))
            return ShuffleNetV2(*stages, size("classes"))
        case _:
            from bench.suites.networks.timm_library import classifier

            return classifier(size("timm"))


def _input(workload: Workload) -> Input:
    size, batch = workload.size, workload.batch or 1
    match workload.name:
        case "bert_base":
            return Input((batch, size("tokens")), "int64", below=size("vocabulary"))
        case "conformer":
            return Input((batch, size("frames"), size("width")), workload.dtype)
        case "nerf":
            return Input((batch * size("points"), size("inputs")), workload.dtype)
        case _:
            return Input((batch, 3, size("image"), size("image")), workload.dtype)
