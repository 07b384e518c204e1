"""ONNX Runtime's own operators, imported and run on the CPU, beside ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import microsoft_cases as cases
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_tile
from bench.node_cases import run_imported
from bench.onnx_forms import Draw, Form
from bench.onnx_forms.microsoft import MICROSOFT
from bench.onnx_forms.microsoft_form import DOMAIN
from bench.onnx_random import difference, onnxruntime_outputs
from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend import import_model
from tvm_tile.frontend.onnx import import_onnx

pytest.importorskip("onnxruntime")

WRITTEN = (*cases.ATTENTION, *cases.GROUPED, *cases.NORMS, *cases.PRODUCTS, *cases.CODES)


def check(form: Form) -> None:
    model = form.model()
    wanted = onnxruntime_outputs(model, form.arguments())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that overflow on the way
        found = run_imported(model, form.arguments())
    assert difference(form, found, wanted) == "", str(form)


@pytest.mark.bank(4)
@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_forms_that_are_written_down(number: int) -> None:
    check(WRITTEN[number])


@pytest.mark.bank(8)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("maker", MICROSOFT, ids=lambda maker: maker.__name__)
def test_random_forms(maker: Callable[[Draw], Form], seed: int) -> None:
    check(maker(Draw(seed)))


def one_node(
    op_type: str, shapes: list[tuple[int, ...]], domain: str = DOMAIN, **attrs: Any
) -> Any:
    node = helper.make_node(
        op_type, [f"x{i}" for i in range(len(shapes))], ["y"], "n", domain=domain, **attrs
    )
    given = [
        helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape)
        for i, shape in enumerate(shapes)
    ]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", 1, None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


NORMALIZED = {"weights_prepacked": 0, "normalize_routing_weights": 1}


def experts(first: tuple[int, ...], second: tuple[int, ...], **attrs: Any) -> Any:
    """Two experts of three tokens of 4 numbers, without a bias."""
    model = one_node("MoE", [(3, 4), (3, 2), first, (1,), second], **attrs)
    model.graph.node[0].input[3] = ""
    return model


def coded_experts(**attrs: Any) -> Any:
    """Two experts of 4-bit codes, of three tokens of 4 numbers; 6 numbers are inside."""
    shapes = [(3, 4), (3, 2), (2, 6, 2), (2, 6), (1,), (2, 4, 3), (2, 4)]
    model = one_node("QMoE", shapes, **attrs)
    model.graph.node[0].input[4] = ""
    for place in (2, 5):
        model.graph.input[place].type.tensor_type.elem_type = TensorProto.UINT8
    return model


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (experts((2, 4, 8), (2, 8, 4)), r"\(2, 4, 8\), not \(2, 4, 4\)"),
        (experts((2, 4, 4), (2, 4, 4), activation_type="swiglu"), "swiglu without"),
        (experts((2, 6, 4), (2, 4, 6), activation_type="relu2"), "activation relu2"),
        (experts((2, 6, 4), (2, 4, 6), k=2, use_sparse_mixer=1), "use_sparse_mixer"),
        (experts((3, 6, 4), (3, 4, 6)), r"\(3, 6, 4\), not \(2, 6, 4\)"),
        (coded_experts(), "weights_prepacked -1.*set the attribute to 0"),
        (coded_experts(weights_prepacked=0), "normalize_routing_weights 0"),
        (coded_experts(**NORMALIZED, quant_type="fp8"), "quant_type fp8"),
        (coded_experts(**NORMALIZED, expert_weight_bits=3), "codes of 3 bits"),
        (coded_experts(**NORMALIZED, block_size=16), "blocks of 16 in rows of 4"),
        (coded_experts(**NORMALIZED, expert_weight_bits=8), "codes of experts of shape"),
        (one_node("Conv", [(1, 4, 5, 5)], "com.microsoft.nchwc"), "ORT_ENABLE_EXTENDED"),
        (one_node("Tokenizer", [(1, 4)]), "com.microsoft::Tokenizer"),
        (one_node("Attention", [(1, 4, 6), (6, 18)], num_heads=2, do_rotary=1), "do_rotary"),
        (one_node("Attention", [(1, 4, 6), (6, 18)]), "num_heads"),
        (one_node("MultiHeadAttention", [(1, 4, 2, 3, 6)], num_heads=2), "in one tensor"),
        (one_node("FusedGemm", [(3, 4), (4, 5)], activation="Mish"), "activation Mish"),
        (one_node("RotaryEmbedding", [(1, 2, 8), (1,), (4, 4), (4, 4)], scale=2.0), "scale"),
    ],
    ids=lambda value: "" if isinstance(value, str) else value.graph.node[0].op_type,
)
def test_what_is_not_known_is_refused_by_name(model: onnx.ModelProto, told: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=told) as refused:
        import_model(model)
    assert model.graph.node[0].op_type in str(refused.value)


def test_old_opsets_are_refused() -> None:
    model = one_node("Gelu", [(3, 4)])
    model.opset_import[0].version = 9
    with pytest.raises(UnsupportedOperatorError, match="opset 9"):
        import_model(model)


@pytest.mark.parametrize(
    ("op_type", "opset"),
    [("LayerNormalization", 13), *[("SimplifiedLayerNormalization", n) for n in (13, 21)]],
)
def test_norms_that_are_taken_for_standard_ones(op_type: str, opset: int) -> None:
    model = one_node(op_type, [(3, 4), (4,)], "", axis=-1)
    del model.opset_import[1]
    model.opset_import[0].version = opset
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype("float32") for shape in ((3, 4), (4,))]
    (wanted,) = onnxruntime_outputs(model, arrays)
    (found,) = run_imported(model, tuple(arrays))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_lengths_that_decide_a_shape_have_to_be_constants() -> None:
    form = cases.GROUPED[5]
    model = replace(form, constants=frozenset()).model()
    with pytest.raises(UnsupportedOperatorError, match="total_sequence_length") as refused:
        import_model(model)
    assert "constants=" in refused.value.remedy
    total = form.inputs[6]
    assert total is not None
    import_onnx(model, constants={"x6": total})


def test_branches_that_are_taken_at_run_time() -> None:
    """What is inside of nodes is written out, too, given the types of what surrounds it."""
    then = helper.make_graph(
        [helper.make_node("FastGelu", ["x", "bias"], ["a"], domain=DOMAIN)], "then", [],
        [helper.make_tensor_value_info("a", 1, None)],
        [onnx.numpy_helper.from_array(np.ones(3, "float32"), "bias")],
    )  # fmt: skip
    other = helper.make_graph(
        [
            helper.make_node("Abs", ["x"], ["positive"]),
            helper.make_node("FusedMatMul", ["positive", "x"], ["b"], domain=DOMAIN, transA=1),
        ],
        "else", [], [helper.make_tensor_value_info("b", 1, None)],
    )  # fmt: skip
    node = helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other)
    given = [
        helper.make_tensor_value_info("flag", TensorProto.BOOL, ()),
        helper.make_tensor_value_info("x", 1, (3, 3)),
    ]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", 1, (3, 3))])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    x = np.random.default_rng(0).normal(size=(3, 3)).astype("float32")
    compiled = tvm_tile.compile(model, "emulated", options=tvm_tile.Options(cache=False))
    for flag in (np.array(True), np.array(False)):
        (wanted,) = onnxruntime_outputs(model, [flag, x])
        np.testing.assert_allclose(np.asarray(compiled(flag, x)), wanted, rtol=1e-5, atol=1e-5)
