"""The benchmark's networks, scaled down: shapes, twins of the same function, the emulated GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tvm_tile
from bench.suites import control_flow, models, predictions, rnn
from bench.suites.networks.looped import looped
from bench.workload import Case, Workload
from tests.models import relative_error

pytestmark = pytest.mark.bank(12)

torch = pytest.importorskip("torch")

LIMIT = 1e-4
# Sizes that differ from the workloads', and the shapes of the outputs they lead to.
Small = tuple[dict[str, int | str], tuple[tuple[int, ...], ...]]
MODELS: dict[str, Small] = {
    "mobilenet_v2": ({"timm": "mobilenetv2_035", "image": 64}, ((2, 1000),)),
    "bert_base": (
        {"tokens": 8, "hidden": 32, "layers": 1, "heads": 2, "ffn": 64, "vocabulary": 50},
        ((2, 8, 32),),
    ),
    "vit_small": ({"timm": "test_vit", "image": 160}, ((2, 1000),)),
    "swin_tiny": ({"timm": "swin_s3_tiny_224", "image": 224}, ((2, 1000),)),
    "conformer": (
        {"frames": 12, "width": 16, "layers": 1, "heads": 2, "ffn": 32, "kernel": 5},
        ((2, 12, 16),),
    ),
    "mobilevit_s": ({"timm": "mobilevit_xxs", "image": 64}, ((2, 1000),)),
    "nafnet": ({"image": 16, "width": 4, "encoder": "1 1", "decoder": "1 1"}, ((2, 3, 16, 16),)),
    "bsrn": ({"image": 32, "width": 16, "blocks": 1, "upscale": 2}, ((2, 3, 64, 64),)),
    "restormer": (
        {"image": 16, "width": 4, "blocks": "1 1 1 1", "refinement": 1},
        ((2, 3, 16, 16),),
    ),
    "nerf": ({"points": 33, "inputs": 8, "hidden": 16, "layers": 2}, ((66, 3),)),
    "resnet50": ({"timm": "resnet18", "image": 32}, ((2, 1000),)),
    "shufflenet_v2": (
        {"image": 64, "repeats": "2 1 2", "channels": "8 16 32 64 64", "classes": 10},
        ((2, 10),),
    ),
}
RNN: dict[str, Small] = {
    "resnext29": ({"image": 16, "blocks": 1, "cardinality": 3, "depth": 4}, ((2, 10),)),
    "nasnet": ({"image": 16, "stem": 12, "cells": 3, "filters": 4}, ((2, 10),)),
    "nasnet_imagenet": (
        {"image": 64, "stem": 6, "cells": 3, "filters": 8, "classes": 10},
        ((2, 10),),
    ),
    "inception_v3": ({"timm": "inception_v3", "image": 75}, ((2, 1000),)),
    "alexnet": ({"image": 67, "features": 32, "classes": 10}, ((2, 10),)),
    "deepspeech2": (
        {"frames": 16, "features": 13, "filters": 4, "layers": 2, "hidden": 8},
        ((8, 29),),
    ),
    "lstm": ({"steps": 3, "layers": 2, "hidden": 8}, ((2, 8),)),
    "seq2seq": (
        {"encoder_steps": 3, "encoder_layers": 2, "decoder_steps": 3, "decoder_layers": 2}
        | {"hidden": 8},
        ((2, 8),),
    ),
}
CONTROL_FLOW: dict[str, Small] = {
    "lstm": RNN["lstm"],
    "nasrnn": ({"steps": 5, "hidden": 8}, ((2, 8),)),
    "attention": (
        {"start": 3, "length": 6, "heads": 2, "head_size": 4},
        ((2, 2, 6, 4), (2, 2, 6, 4), (2, 2, 1, 4)),
    ),
    "seq2seq": ({"hidden": 8, "vocabulary": 40, "max_length": 20}, ((20, 2), (2, 8))),
    "blockdrop": ({"image": 16, "width": 4, "blocks": 2}, ((2, 10),)),
    "skipnet": ({"image": 64, "width": 4, "blocks": "2 2 2 2", "classes": 10}, ((2, 10),)),
    "rae": ({"nodes": 9, "hidden": 6}, ((6,),)),
}
# A block of each stage, and two layers, are left in.
ONE_EACH = {f"stage{stage}.{block:02}": "" for stage in range(5) for block in range(1, 4)}
TWO_LAYERS = {f"layer{layer:02}": "" for layer in range(2, 14)}
CANDIDATES: dict[str, Small] = {
    "mobilenet_v3_0": ({"image": 64, **ONE_EACH}, ((2, 1000),)),
    "proxyless_0": ({"image": 64, **ONE_EACH}, ((2, 1000),)),
    "autoformer_0": ({"image": 64, "width": 24, **TWO_LAYERS}, ((2, 1000),)),
}
SMALL = {models: MODELS, rnn: RNN, control_flow: CONTROL_FLOW, predictions: CANDIDATES}
NETWORKS = [(suite, name) for suite, small in SMALL.items() for name in small]
LIBRARIES = {"bert_base": "transformers"} | {
    name: "timm" for name, (sizes, _) in (MODELS | RNN).items() if "timm" in sizes
}
every_network = pytest.mark.parametrize(
    ("suite", "name"), NETWORKS, ids=[f"{s.__name__[13:]}-{n}" for s, n in NETWORKS]
)


def small_workload(suite: Any, name: str, dtype: str = "float32") -> Workload:
    """A workload of the suite with batch 2 and small sizes."""
    if (library := LIBRARIES.get(name)) and importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}")
    workload = next(each for each in suite.workloads() if each.name == name)
    sizes = dict(workload.sizes) | SMALL[suite][name][0]
    return replace(workload, dtype=dtype, batch=2, sizes=tuple(sorted(sizes.items())))


def draw(case: Case) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(7)

    def one(each: Any) -> Any:
        if each.below:
            return torch.randint(0, each.below, each.shape, generator=generator)
        return torch.randn(each.shape, generator=generator).to(getattr(torch, each.dtype))

    return tuple(one(each) for each in case.inputs)


def run(module: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
    with torch.no_grad():
        outputs = module(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return tuple(np.asarray(output) for output in outputs)


def largest_error(found: tuple[Any, ...], expected: tuple[Any, ...]) -> float:
    return max(relative_error(a, b) for a, b in zip(found, expected, strict=True))


@every_network
def test_shapes_precision_and_cost(suite: Any, name: str) -> None:
    workload = small_workload(suite, name)
    case = suite.case(workload)
    inputs = draw(case)
    outputs = run(case.module, inputs)
    assert tuple(output.shape for output in outputs) == SMALL[suite][name][1]
    assert all(0.01 < np.std(output) < 1e4 for output in outputs)
    assert not case.is_operator
    # Rounding errors stay rounding errors: the function is no chaotic one.
    widened = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    exact = run(suite.case(workload).module.double(), widened)
    assert largest_error(outputs, exact) <= 1e-5
    held = sum(x.nbytes for x in (*case.module.parameters(), *case.module.buffers()))
    ends = sum(x.nbytes for x in (*inputs, *outputs))
    assert ends < case.bytes <= held + ends
    assert case.flops > 0


@pytest.mark.parametrize("name", [name for name in MODELS if name != "swin_tiny"])
def test_models_in_half_precision(name: str) -> None:
    case = models.case(small_workload(models, name, "float16"))
    inputs = draw(case)
    outputs = run(case.module, inputs)
    assert all(output.dtype == np.float16 for output in outputs)
    widened = tuple(x.float() if x.is_floating_point() else x for x in inputs)
    assert largest_error(outputs, run(case.module.float(), widened)) <= case.tolerance


def test_nasnet_for_imagenet_is_the_papers_mobile_one() -> None:
    workload = next(w for w in rnn.workloads() if w.name == "nasnet_imagenet")
    case = rnn.case(workload)
    assert case.module.classify.in_features == 1056  # 4 @ 1056
    # Table 2: 564 million multiplications and additions, 5.3 million parameters.
    assert abs(case.flops / 2 / 564e6 - 1) < 0.03
    assert abs(sum(p.numel() for p in case.module.parameters()) / 5.3e6 - 1) < 0.01


def test_spaces_have_the_papers_networks() -> None:
    """Those of other papers that lie in the same spaces, by their numbers of parameters."""
    from bench.suites.networks.autoformer import AutoFormer
    from bench.suites.networks.mobile import Stage, once_for_all, proxyless

    def mobile(*kinds: list[str]) -> dict[str, int | str]:
        stages = enumerate(kinds)
        found = {f"stage{s}.{b:02}": kind for s, own in stages for b, kind in enumerate(own)}
        return {"width": 100, **found}

    def count(module: Any) -> int:
        return sum(weight.numel() for weight in module.parameters())

    widths = ((24, 2), (32, 2), (64, 2), (96, 1), (160, 2), (320, 1))
    version_2 = [Stage(width, stride, torch.nn.ReLU6) for width, stride in widths]
    repeats = ([kind] * times for kind, times in zip(["3x6"] * 6, (2, 3, 4, 3, 3, 1), strict=True))
    assert count(proxyless(mobile(*repeats), stages=version_2)) == 3_504_872
    large = (
        *(["3x4", "3x3"], ["5x3"] * 3, ["3x6", "3x2.5", "3x2.3", "3x2.3"]),
        *(["3x6"] * 2, ["5x6"] * 3),
    )
    # Its last but one layer has a bias, which that of Once-for-All has not.
    assert count(once_for_all(mobile(*large))) == 5_483_032 - 1280
    tiny = {"image": 224, "width": 192, **{f"layer{number:02}": "3x4" for number in range(12)}}
    assert count(AutoFormer(tiny)) == 5_717_416  # DeiT-Ti


def test_blocks_of_mobile_networks_by_hand() -> None:
    from bench.suites.networks.mobile import InvertedBottleneck, SqueezeAndExcite, Stage

    x = torch.randn(2, 16, 8, 8)
    for stride, width in ((1, 16), (2, 16), (1, 24)):
        block = InvertedBottleneck(16, Stage(width, 1, torch.nn.ReLU), "5x3", stride).eval()
        torch.nn.init.zeros_(block.steps[-1].weight)  # of the last norm
        adds = (stride, width) == (1, 16)
        assert torch.equal(block(x), x if adds else torch.zeros(2, width, 8 // stride, 8 // stride))
    weighing = SqueezeAndExcite(16)
    down, up = (
        (layer.weight.flatten(1).double(), layer.bias.double())
        for layer in (weighing.squeeze, weighing.excite)
    )
    inner = (x.double().mean((2, 3)) @ down[0].T + down[1]).clamp(min=0)
    weights = ((inner @ up[0].T + up[1] + 3) / 6).clamp(0, 1)
    assert (
        largest_error(run(weighing, (x,)), run(lambda x: x * weights[..., None, None], (x,))) < 1e-5
    )


def test_a_layer_of_autoformer_is_pytorchs_with_heads_of_64() -> None:
    from bench.suites.networks.autoformer import Layer

    own = Layer(128, "2x3.5").eval()
    theirs = torch.nn.TransformerEncoderLayer(
        128, 2, 448, activation="gelu", batch_first=True, norm_first=True
    ).eval()
    pairs = {
        "self_attn.in_proj_": own.drawn,
        "self_attn.out_proj.": own.out,
        "linear1.": own.feed_forward[0],
        "linear2.": own.feed_forward[2],
        "norm1.": own.norms[0],
        "norm2.": own.norms[1],
    }
    theirs.load_state_dict(
        {
            f"{name}{key}": value
            for name, layer in pairs.items()
            for key, value in layer.state_dict().items()
        }
    )
    x = torch.randn(3, 7, 128)
    assert largest_error(run(own, (x,)), run(theirs, (x,))) < 1e-5


@pytest.mark.parametrize(
    ("suite", "name"),
    [(rnn, "inception_v3"), *((predictions, name) for name in CANDIDATES)],
    ids=["inception_v3", *CANDIDATES],
)
def test_networks_answer_to_their_inputs(suite: Any, name: str) -> None:
    case = suite.case(small_workload(suite, name))
    first, second = run(case.module, draw(case))[0]
    assert relative_error(first, second) > 5 * case.tolerance


def test_cost_of_a_known_network() -> None:
    sizes = {"points": 10, "inputs": 4, "hidden": 8, "layers": 2, "outputs": 3}
    workload = replace(small_workload(models, "nerf"), batch=1, sizes=tuple(sizes.items()))
    case = models.case(workload)
    weights = 4 * 8 + 8 * 8 + 8 * 3
    assert case.flops == 2 * 10 * weights
    assert case.bytes == 4 * (weights + 8 + 8 + 3 + 10 * (4 + 3))


def test_only_the_rows_looked_up_count() -> None:
    workload = small_workload(models, "bert_base")
    few, all_rows = (
        models.case(replace(workload, sizes=tuple((dict(workload.sizes) | change).items())))
        for change in ({"vocabulary": 1000}, {"vocabulary": 16})
    )
    assert few.bytes == all_rows.bytes  # 16 tokens look up at most 16 rows


@pytest.mark.parametrize("name", ["resnext29", "deepspeech2", "lstm", "seq2seq"])
def test_vendor_form_is_the_same_function(name: str) -> None:
    workload = small_workload(rnn, name)
    case = rnn.case(workload)
    vendor = rnn.vendor_module(workload)
    inputs = draw(case)
    assert vendor is not None
    assert not vendor.training
    assert largest_error(run(vendor, inputs), run(case.module, inputs)) <= 1e-5


def test_vendor_form_of_the_loop() -> None:
    workload = small_workload(control_flow, "lstm")
    case = control_flow.case(workload)
    vendor = control_flow.vendor_module(workload)
    inputs = draw(case)
    assert largest_error(run(vendor, inputs), run(case.module, inputs)) <= 1e-5
    assert control_flow.vendor_module(small_workload(control_flow, "rae")) is None


@pytest.mark.parametrize("name", ["lstm", "nasrnn", "attention", "seq2seq"])
def test_loop_in_jax_is_the_same_function(name: str) -> None:
    jax = pytest.importorskip("jax")
    case = control_flow.case(small_workload(control_flow, name))
    assert case.loop is not None
    inputs = draw(case)
    twin = jax.jit(case.loop())
    found = run(lambda *xs: twin(*(x.numpy() for x in xs)), inputs)
    assert largest_error(found, run(case.module, inputs)) <= 1e-5


# The others take PyTorch's compiler long.
@pytest.mark.parametrize("name", ["nasrnn", "seq2seq", "blockdrop", "rae"])
def test_loops_and_branches_of_pytorch_are_the_same_function(name: str) -> None:
    case = control_flow.case(small_workload(control_flow, name))
    module, inputs = looped(case.module), draw(case)
    assert (module is None) == (name == "rae")
    if module is not None:
        assert largest_error(run(module, inputs), run(case.module, inputs)) <= 1e-5


def test_decoder_stops_when_all_sentences_have_ended() -> None:
    case = control_flow.case(small_workload(control_flow, "seq2seq"))
    words, _ = run(case.module, draw(case))
    lengths = (words != 0).sum(axis=0)
    assert all(6 <= length <= 14 for length in lengths)
    for sentence, length in zip(words.T, lengths, strict=True):
        assert (sentence[:length] > 1).all()
        assert (sentence[length:] == 0).all()


@pytest.mark.parametrize(("name", "blocks"), [("blockdrop", 6), ("skipnet", 8)])
def test_some_blocks_run_and_some_do_not(name: str, blocks: int) -> None:
    case = control_flow.case(small_workload(control_flow, name))
    network = case.module.network if name == "blockdrop" else case.module
    ran: list[int] = []
    for i, block in enumerate(network.blocks):
        block.register_forward_hook(lambda *_, number=i: ran.append(number))
    run(case.module, draw(case))
    assert len(network.blocks) == blocks
    assert 1 < len(ran) < blocks
    assert ran == sorted(set(ran))


# One network of each kind; the rest have many kernels, each some tenths of a second to build.
COMPILED = [
    *((models, name) for name in ("conformer", "nafnet", "bsrn", "nerf", "shufflenet_v2")),
    *((rnn, name) for name in ("resnext29", "deepspeech2", "lstm", "seq2seq")),
    *((control_flow, name) for name in ("nasrnn", "attention")),
    *((predictions, name) for name in CANDIDATES),
]


@pytest.mark.parametrize(
    ("suite", "name"), COMPILED, ids=[f"{s.__name__[13:]}-{n}" for s, n in COMPILED]
)
def test_compiled_network(suite: Any, name: str) -> None:
    pytest.importorskip("pyopencl")
    case = suite.case(small_workload(suite, name))
    inputs = draw(case)
    model = tvm_tile.compile(case.module, device="emulated", example_inputs=inputs)
    found = model(*(x.numpy() for x in inputs))
    found = found if isinstance(found, tuple) else (found,)
    assert largest_error(found, run(case.module, inputs)) <= LIMIT


@pytest.mark.parametrize("name", ["seq2seq", "blockdrop", "skipnet", "rae"])
def test_control_flow_on_data_is_refused(name: str) -> None:
    case = control_flow.case(small_workload(control_flow, name))
    with pytest.raises(tvm_tile.ModelError, match="exportable"):
        tvm_tile.compile(case.module, device="emulated", example_inputs=draw(case))
