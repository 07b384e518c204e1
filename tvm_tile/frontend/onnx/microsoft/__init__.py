"""Operators of ONNX Runtime's domain, which its optimizer and its quantizer write.

Each becomes standard operators before anything else looks at the model, so that shapes are
inferred, constants folded and kernels fused as of models that never had them. Knows ONNX, not TVM.
"""

from __future__ import annotations

import onnx

from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend.onnx.fold import fold
from tvm_tile.frontend.onnx.microsoft import attention, codes, experts, norms, numbers, recurrent
from tvm_tile.frontend.onnx.microsoft.function_body import Definition, FunctionBody, NotYetKnown
from tvm_tile.frontend.onnx.microsoft.grouped import write_group_query_attention
from tvm_tile.frontend.onnx.model import outline
from tvm_tile.frontend.onnx.rewrite import (
    expand_functions,
    graphs_of,
    opset_version,
    replace_nodes,
    walk_nodes,
)
from tvm_tile.frontend.onnx.types import inferred_graph, inferred_types

DOMAIN = "com.microsoft"

_DEFINITIONS: dict[str, Definition] = {
    "Attention": attention.write_attention,
    "BiasGelu": numbers.write_gelu,
    "DequantizeLinear": codes.write_dequantize,
    "DynamicQuantizeLSTM": recurrent.write_dynamic_lstm,
    "DynamicQuantizeMatMul": codes.write_dynamic_matmul,
    "EmbedLayerNormalization": norms.write_embeddings,
    "FastGelu": numbers.write_fast_gelu,
    "FusedConv": numbers.write_fused_conv,
    "FusedGemm": numbers.write_fused_gemm,
    "FusedMatMul": numbers.write_fused_matmul,
    "Gelu": numbers.write_gelu,
    "GroupQueryAttention": write_group_query_attention,
    "LayerNormalization": norms.write_layer_norm,
    "MatMulInteger16": numbers.write_matmul_integer16,
    "MatMulIntegerToFloat": codes.write_matmul_to_float,
    "MatMulNBits": numbers.write_matmul_bits,
    "MoE": experts.write_experts,
    "MultiHeadAttention": attention.write_multi_head_attention,
    "QAttention": attention.write_quantized_attention,
    "QGemm": codes.write_gemm,
    "QLinearAdd": codes.write_binary,
    "QLinearAveragePool": codes.write_unary,
    "QLinearConcat": codes.write_concat,
    "QLinearConv": codes.write_conv,
    "QLinearGlobalAveragePool": codes.write_unary,
    "QLinearLeakyRelu": codes.write_unary,
    "QLinearMul": codes.write_binary,
    "QLinearSigmoid": codes.write_unary,
    "QLinearSoftmax": codes.write_softmax,
    "QLinearWhere": codes.write_where,
    "QMoE": experts.write_coded_experts,
    "QuantizeLinear": codes.write_quantize,
    "QuickGelu": numbers.write_quick_gelu,
    "RotaryEmbedding": attention.write_rotary_embedding,
    "SimplifiedLayerNormalization": norms.write_rms_norm,
    "SkipLayerNormalization": norms.write_skip_layer_norm,
    "SkipSimplifiedLayerNormalization": norms.write_skip_rms_norm,
}
_LEAST_OPSET = 11
_LAYOUT = (
    "its layout is one of ONNX Runtime's CPU kernels",
    "save the model at GraphOptimizationLevel.ORT_ENABLE_EXTENDED, which is for any machine",
)


def written_out(model: onnx.ModelProto) -> onnx.ModelProto:
    """Write the nodes of ONNX Runtime's domain as standard operators.

    Args:
        model: the sizes of its inputs are static; stays as it is.

    Returns:
        A model with none of these.

    Raises:
        UnsupportedOperatorError: a node is of an operator, or of a form, that is not known.
    """
    bodies = (model.graph, *model.functions)
    if not any(node.domain.startswith(DOMAIN) for body in bodies for node in walk_nodes(body)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(expand_functions(model, None))
    is_folded = False
    while True:
        written, waiting = _write_known(copy)
        if not waiting:
            return copy
        if written:
            is_folded = False
        elif not is_folded:  # what is computed of shapes may say more
            copy, is_folded = fold(copy), True
        else:
            node, reason = waiting[0]
            raise _refusal(node, f"{reason} is not known", "give it as one of constants=")


def _write_known(model: onnx.ModelProto) -> tuple[int, list[tuple[onnx.NodeProto, NotYetKnown]]]:
    """Write the nodes of which enough is known, in place.

    Returns:
        How many were written; and the other ones, with what is not known.
    """
    types = _types(model)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    opset = opset_version(model)
    waiting: list[tuple[onnx.NodeProto, NotYetKnown]] = []
    written = 0

    def write_graph(graph: onnx.GraphProto) -> None:
        nonlocal written
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            for attribute in node.attribute:
                for inner in graphs_of(attribute):
                    write_graph(inner)
            if not node.domain.startswith(DOMAIN):
                nodes.append(node)
                continue
            body = FunctionBody(node, types, constants, opset, [])
            try:
                nodes.extend(_definition(body))
                written += 1
            except NotYetKnown as reason:
                nodes.append(node)
                waiting.append((node, reason))
        replace_nodes(graph, nodes)

    write_graph(model.graph)
    return written, waiting


def _definition(body: FunctionBody) -> list[onnx.NodeProto]:
    """The operators that a node stands for; its own outputs are the last ones."""
    node = body.node
    if node.domain.startswith(f"{DOMAIN}.nchwc"):
        raise _refusal(node, *_LAYOUT)
    if body.opset < _LEAST_OPSET:
        told = f"the model is of opset {body.opset}, its operators need {_LEAST_OPSET}"
        raise _refusal(node, told, "export the model to a newer opset, then optimize it")
    if node.op_type not in _DEFINITIONS:
        raise _refusal(node, "it is not known", "export the model without it")
    try:
        results = _DEFINITIONS[node.op_type](body)
    except NotYetKnown:
        raise
    except Exception as error:  # inputs that are missing or contradict each other, in any way
        is_form = isinstance(error, NotImplementedError)
        told = f"with {error}" if is_form else f"its inputs contradict it: {error!r}"
        remedy = "export this operator in another form, or save the model before it was optimized"
        raise _refusal(node, told, remedy) from error
    for name, result in zip(node.output, results, strict=False):
        if name and not result:
            raise _refusal(node, f"its output {name!r} is not known", "drop this output")
        if name:
            body.nodes.append(onnx.helper.make_node("Identity", [result], [name]))
    return body.nodes


def _refusal(node: onnx.NodeProto, reason: str, remedy: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"operators of {DOMAIN} must be in forms that are known",
        f"{node.domain}::{node.op_type} (node {node.name or node.output[0]}): {reason}",
        remedy,
    )


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto.Tensor]:
    """Element types and shapes, as far as they are inferred, of tensors inside of nodes, too."""
    types = inferred_types(model)
    waiting = [model.graph]
    if any(graphs_of(attribute) for node in model.graph.node for attribute in node.attribute):
        waiting.append(inferred_graph(outline(model)))
    while waiting:
        graph = waiting.pop()
        waiting += [inner for node in graph.node for a in node.attribute for inner in graphs_of(a)]
        held = (
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            for tensor in graph.initializer
        )
        for value in (*graph.input, *graph.value_info, *held):
            types.setdefault(value.name, value.type.tensor_type)
    return types
