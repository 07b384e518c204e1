"""Small ONNX models with something wrong in them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.onnx_forms import Draw, random_form

_FLOAT = TensorProto.FLOAT
_OPERATORS = tuple(sorted({s.name for s in onnx.defs.get_all_schemas() if not s.domain}))
_NUMBERS = (-(2**63), -(2**31), -7, -1, 0, 1, 2, 3, 99, 2**31, 10**10, 10**12, 2**63 - 1)
_NAMES = ("", "nowhere", "x", "y", "x0", "y0", "é\n", "a b/c", "0", "main")


def mutated(seed: int) -> tuple[bytes, str]:
    """The model of a seed as bytes, and what was done to it."""
    draw = Draw(seed)
    name, model = _base(draw)
    done = []
    for _ in range(draw.int(1, 3)):
        mutate = draw.choose(*_MUTATIONS)
        try:
            done.append(f"{mutate.__name__.strip('_')} {mutate(draw, model)}")
        except (IndexError, ValueError, TypeError):  # there is no such thing in this model
            continue
    data = model.SerializeToString()
    if draw.maybe(0.15) or not done:
        position = draw.int(0, len(data) - 1)
        data = data[:position] + bytes([draw.int(0, 255)]) + data[position + 1 :]
        done.append(f"byte {position}")
    return data, f"{name}: {', '.join(done)}"


def _base(draw: Draw) -> tuple[str, onnx.ModelProto]:
    kind = draw.int(0, 6)
    if kind == 0:
        return "network", _network(draw)
    if kind == 1:
        return "functions", _functions()
    if kind == 2:
        return "branches", _branches()
    form = random_form(draw.int(0, 10**6))
    return form.op_type, form.model()


def _network(draw: Draw) -> onnx.ModelProto:
    """Convolution, norm, shape arithmetic and a product."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "s", "s", "s"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["p"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["p", "to"], ["f"]),
        helper.make_node("Gemm", ["f", "v"], ["g"], transB=1),
        helper.make_node("Softmax", ["g"], ["y"], axis=-1),
    ]
    weights = {
        "w": draw.normal((4, 3, 3, 3)),
        "s": np.abs(draw.normal((4,))),
        "first": np.array([0]),
        "rest": np.array([-1]),
        "v": draw.normal((5, 16)),
    }
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", _FLOAT, [2, 3, 4, 4])],
        [helper.make_tensor_value_info("y", _FLOAT, [2, 5])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return _model(graph)


def _functions() -> onnx.ModelProto:
    """Functions that call each other."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]

    def function(name: str, inner: str, domain: str) -> onnx.FunctionProto:
        nodes = [
            helper.make_node(inner, ["a"], ["b"], domain=domain),
            helper.make_node(inner, ["b"], ["c"], domain=domain),
        ]
        return helper.make_function("own", name, ["a"], ["c"], nodes, opsets)

    graph = helper.make_graph(
        [helper.make_node("f2", ["x"], ["y"], domain="own")],
        "functions",
        [helper.make_tensor_value_info("x", _FLOAT, [3])],
        [helper.make_tensor_value_info("y", _FLOAT, [3])],
    )
    model = _model(graph)
    model.opset_import.append(opsets[1])
    model.functions.extend(
        [function("f0", "Sin", ""), function("f1", "f0", "own"), function("f2", "f1", "own")]
    )
    return model


def _branches() -> onnx.ModelProto:
    """An If whose condition is an input."""
    graphs = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op_type, ["x"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, _FLOAT, [3])],
        )
        for name, op_type in (("then", "Neg"), ("else", "Relu"))
    }
    graph = helper.make_graph(
        [helper.make_node("If", ["flag"], ["y"], **graphs)],
        "branches",
        [
            helper.make_tensor_value_info("x", _FLOAT, [3]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", _FLOAT, [3])],
    )
    return _model(graph)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _operator(draw: Draw, model: onnx.ModelProto) -> str:
    node = draw.choose(*model.graph.node)
    node.op_type = draw.choose(*_OPERATORS, "", "Nonsense", "main", "é")
    return str(node.op_type)


def _domain(draw: Draw, model: onnx.ModelProto) -> str:
    node = draw.choose(*model.graph.node)
    node.domain = draw.choose("com.microsoft", "ai.onnx.ml", "own", "elsewhere")
    return str(node.domain)


def _attribute_value(draw: Draw, model: onnx.ModelProto) -> str:
    node = draw.choose(*[node for node in model.graph.node if node.attribute])
    attribute = draw.choose(*node.attribute)
    if attribute.ints and draw.maybe(0.8):
        attribute.ints[draw.int(0, len(attribute.ints) - 1)] = draw.choose(*_NUMBERS)
    elif attribute.HasField("i"):
        attribute.i = draw.choose(*_NUMBERS)
    elif attribute.HasField("f"):
        attribute.f = draw.choose(float("nan"), float("inf"), -1.0, 0.0, 1e30)
    elif attribute.HasField("s"):
        attribute.s = draw.choose(b"", b"\xff\xfe", b"linear", b"SAME_UPPER", b"reverse")
    else:
        del attribute.ints[:]
    return str(attribute.name)


def _attribute_type(draw: Draw, model: onnx.ModelProto) -> str:
    node = draw.choose(*[node for node in model.graph.node if node.attribute])
    attribute = draw.choose(*node.attribute)
    attribute.type = draw.int(0, 14)
    return f"{attribute.name} {attribute.type}"


def _attribute_dropped(draw: Draw, model: onnx.ModelProto) -> str:
    node = draw.choose(*[node for node in model.graph.node if node.attribute])
    index = draw.int(0, len(node.attribute) - 1)
    name = node.attribute[index].name
    if draw.maybe():
        node.attribute.append(node.attribute[index])
        return f"{name} twice"
    del node.attribute[index]
    return str(name)


def _attribute_added(draw: Draw, model: onnx.ModelProto) -> str:
    node = draw.choose(*model.graph.node)
    name = draw.choose("axis", "axes", "to", "mode", "keepdims", "hidden_size", "unknown")
    value = draw.choose(0, -1, 10**12, 1.5, "linear", [0, 1], [10**10])
    node.attribute.append(helper.make_attribute(name, value))
    return f"{name}={value}"


def _edge(draw: Draw, model: onnx.ModelProto) -> str:
    node = draw.choose(*[node for node in model.graph.node if node.input])
    names = [n for other in model.graph.node for n in (*other.input, *other.output)]
    index = draw.int(0, len(node.input) - 1)
    node.input[index] = draw.choose(*names, *_NAMES)
    return f"input {index} = {node.input[index]!r}"


def _edges(draw: Draw, model: onnx.ModelProto) -> str:
    node = draw.choose(*model.graph.node)
    if draw.maybe() and node.input:
        del node.input[-1]
        return "input dropped"
    node.input.append(draw.choose("", *[v.name for v in model.graph.input]))
    return "input added"


def _output(draw: Draw, model: onnx.ModelProto) -> str:
    node = draw.choose(*model.graph.node)
    names = [n for other in model.graph.node for n in (*other.input, *other.output)]
    if draw.maybe(0.3):
        node.output.append(draw.choose("more", *names))
        return "output added"
    node.output[0] = draw.choose(*names, *_NAMES)
    return f"output = {node.output[0]!r}"


def _extent(draw: Draw, model: onnx.ModelProto) -> str:
    value = draw.choose(*model.graph.input, *model.graph.output)
    dims = value.type.tensor_type.shape.dim
    how = draw.int(0, 3)
    if how == 0:
        dims.add().dim_value = draw.choose(*_NUMBERS)
    elif how == 1:
        draw.choose(*dims).dim_param = draw.choose("n", "?", "é", "")
    elif how == 2:
        del dims[-1]
    else:
        draw.choose(*dims).dim_value = draw.choose(*_NUMBERS)
    return f"{value.name} {how}"


def _value_type(draw: Draw, model: onnx.ModelProto) -> str:
    value = draw.choose(*model.graph.input, *model.graph.output)
    how = draw.int(0, 3)
    if how == 0:
        tensor = onnx.TypeProto.Tensor()
        tensor.CopyFrom(value.type.tensor_type)
        value.type.sequence_type.elem_type.tensor_type.CopyFrom(tensor)
    elif how == 1:
        tensor = onnx.TypeProto.Tensor()
        tensor.CopyFrom(value.type.tensor_type)
        value.type.optional_type.elem_type.tensor_type.CopyFrom(tensor)
    elif how == 2:
        value.ClearField("type")
    else:
        value.type.tensor_type.elem_type = draw.int(0, 30)
    return f"{value.name} {how}"


def _weight(draw: Draw, model: onnx.ModelProto) -> str:
    tensor = draw.choose(*model.graph.initializer)
    how = draw.int(0, 6)
    if how == 0:
        tensor.raw_data = tensor.raw_data[: draw.int(0, max(0, len(tensor.raw_data) - 1))]
    elif how == 1:
        tensor.raw_data = tensor.raw_data + b"\x01\x02\x03"
    elif how == 2:
        tensor.dims[draw.int(0, len(tensor.dims) - 1)] = draw.choose(*_NUMBERS)
    elif how == 3:
        tensor.data_type = draw.int(0, 30)
    elif how == 4:
        tensor.name = draw.choose(*_NAMES, *[v.name for v in model.graph.input])
    elif how == 5:
        tensor.dims.append(draw.choose(*_NUMBERS))
    else:
        array = numpy_helper.to_array(tensor)
        changed = np.full_like(array, draw.choose(-1, 0, 99, 10**6 if array.itemsize > 2 else 9))
        tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
    return f"{tensor.name} {how}"


def _version(draw: Draw, model: onnx.ModelProto) -> str:
    how = draw.int(0, 3)
    if how == 0:
        model.opset_import[0].version = draw.choose(0, 1, 5, 7, 9, 11, 13, 28, 99, -1, 2**40)
    elif how == 1:
        model.ir_version = draw.choose(0, 1, 3, 99, 2**40)
    elif how == 2:
        del model.opset_import[:]
    else:
        model.opset_import.append(model.opset_import[0])
    return str(how)


def _copies(draw: Draw, model: onnx.ModelProto) -> str:
    lists = (model.graph.node, model.graph.initializer, model.graph.input, model.graph.output)
    which = draw.int(0, 3)
    chosen = draw.choose(*lists[which])
    if draw.maybe():
        lists[which].append(chosen)
        return f"twice {which}"
    lists[which].remove(chosen)
    return f"gone {which}"


_MUTATIONS: tuple[Callable[[Draw, onnx.ModelProto], str], ...] = (
    *(_operator, _domain, _attribute_value, _attribute_value, _attribute_type, _attribute_dropped),
    *(_attribute_added, _edge, _edges, _output, _extent, _extent, _value_type, _weight, _weight),
    *(_version, _copies),
)
