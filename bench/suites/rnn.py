"""Networks of many small operators, of which several could run at once: Rammer's, and Inception."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.suites.model_suite import network_case, read_source, read_workloads
from bench.workload import Case, Input, Workload

if TYPE_CHECKING:
    import torch

FILE = "rammer_models.json"
SOURCE = read_source(FILE)


def workloads() -> tuple[Workload, ...]:
    """Every network in float32; ResNeXt and LSTM with batch 1, 4, 16 and 64."""
    return read_workloads("rnn", FILE)


def case(workload: Workload) -> Case:
    """The network with random weights, and its input; loops over time are unrolled."""
    return network_case(workload, _seeded_network(workload), (_input(workload),))


def vendor_module(workload: Workload) -> torch.nn.Module | None:
    """The same function with the same weights as PyTorch's users write it, where that differs.

    Recurrences become :class:`torch.nn.LSTM` (cuDNN's), ResNeXt's branches grouped convolutions.
    """
    import torch

    module = _vendor(workload)
    return module and module.to(getattr(torch, workload.dtype))


def _vendor(workload: Workload) -> torch.nn.Module | None:
    match workload.name:
        case "resnext29":
            from bench.suites.networks.resnext import grouped_weights
            from bench.suites.networks.seeded import seeded

            grouped = seeded(lambda: _resnext(workload, grouped=True))
            grouped.load_state_dict(grouped_weights(_seeded_network(workload).state_dict()))
            return grouped
        case "deepspeech2":
            from bench.suites.networks.deepspeech2 import vendor_deepspeech2

            return vendor_deepspeech2(_seeded_network(workload))
        case "lstm":
            from bench.suites.networks.lstm import vendor_last_state

            return vendor_last_state(_seeded_network(workload))
        case "seq2seq":
            from bench.suites.networks.seq2seq import VendorSeq2Seq

            return VendorSeq2Seq(_seeded_network(workload)).eval()
        case _:
            return None


def _seeded_network(workload: Workload) -> torch.nn.Module:
    from bench.suites.networks.seeded import seeded

    gain = 2.0 if workload.name == "inception_v3" else 1.0
    return seeded(lambda: _network(workload), gain=gain)


def _network(workload: Workload) -> torch.nn.Module:
    size = workload.size
    match workload.name:
        case "resnext29":
            return _resnext(workload)
        case "nasnet" | "nasnet_imagenet":
            from bench.suites.networks.nasnet import NASNet

            names = ("stem", "stem_cells", "cells", "filters", "classes")
            return NASNet(*(size(name) for name in names))
        case "inception_v3":
            from bench.suites.networks.timm_library import classifier

            return classifier(size("timm"))
        case "alexnet":
            from bench.suites.networks.alexnet import AlexNet

            return AlexNet(size("features"), size("classes"), size("image"))
        case "deepspeech2":
            from bench.suites.networks.deepspeech2 import DeepSpeech2

            names = ("features", "filters", "layers", "hidden", "classes")
            return DeepSpeech2(*(size(name) for name in names))
        case "lstm":
            from bench.suites.networks.lstm import LastState, StackedLSTM

            return LastState(StackedLSTM(size("layers"), size("hidden"), size("hidden")))
        case "seq2seq":
            from bench.suites.networks.seq2seq import Seq2Seq

            names = ("encoder_layers", "decoder_layers", "decoder_steps", "hidden")
            return Seq2Seq(*(size(name) for name in names))
        case name:
            raise KeyError(name)


def _resnext(workload: Workload, *, grouped: bool = False) -> torch.nn.Module:
    from bench.suites.networks.resnext import ResNeXt

    names = ("blocks", "cardinality", "depth", "classes")
    return ResNeXt(*(workload.size(name) for name in names), grouped=grouped)


def _input(workload: Workload) -> Input:
    size, batch = workload.size, workload.batch or 1
    match workload.name:
        case "deepspeech2":
            return Input((batch, 1, size("frames"), size("features")), workload.dtype)
        case "lstm":
            return Input((size("steps"), batch, size("hidden")), workload.dtype)
        case "seq2seq":
            return Input((size("encoder_steps"), batch, size("hidden")), workload.dtype)
        case _:
            return Input((batch, 3, size("image"), size("image")), workload.dtype)
