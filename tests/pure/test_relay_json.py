"""Forms of TVM's JSON that the corpus lacks: other versions, long chains, and wrong nodes."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
import relay_corpus
from test_relay_arrays import saved_array

from tvm_tile.errors import ModelFileError, UnsupportedOperatorError
from tvm_tile.frontend.relay.json_file import read_json
from tvm_tile.frontend.relay.program import (
    Call,
    Constant,
    Function,
    Let,
    Local,
    Operator,
    Program,
    TensorType,
)


class File:
    """A file that is being made: nodes are added after those that they refer to."""

    def __init__(self, version: str = "0.17.dev0") -> None:
        self.version = version
        self.nodes: list[dict[str, Any]] = [{"type_key": ""}]
        self.arrays: list[np.ndarray] = []

    def add(self, type_key: str, items: list[int] | None = None, **fields: object) -> int:
        node: dict[str, Any] = {"type_key": type_key}
        if items is not None:
            node["data"] = items
        if fields:
            node["attrs"] = {name: str(value) for name, value in fields.items()}
        self.nodes.append(node)
        return len(self.nodes) - 1

    def text(self, text: str, type_key: str = "runtime.String", field: str = "repr_str") -> int:
        self.nodes.append({"type_key": type_key, field: text})
        return len(self.nodes) - 1

    def variable(self, name: str = "x") -> int:
        shape = self.add("Array", [self.add("IntImm", dtype="int32", value=4)])
        kind = self.add("relay.TensorType", dtype="float32", shape=shape)
        identity = self.add("relay.Id", name_hint=self.text(name))
        return self.add("relay.Var", vid=identity, type_annotation=kind)

    def call(self, operator: str, *arguments: int, attrs: int = 0) -> int:
        listed = self.add("Array", list(arguments))
        return self.add("relay.Call", op=self.text(operator, "Op"), args=listed, attrs=attrs)

    def function(self, parameters: list[int], body: int) -> int:
        return self.add("relay.Function", params=self.add("Array", parameters), body=body, attrs=0)

    def read(self, root: int | None = None) -> Program:
        content = {
            "root": len(self.nodes) - 1 if root is None else root,
            "nodes": self.nodes,
            "b64ndarrays": [base64.b64encode(saved_array(one)).decode() for one in self.arrays],
            "attrs": {"tvm_version": self.version},
        }
        return read_json(json.dumps(content), "j")


def test_a_function_is_main() -> None:
    file = File()
    x = file.variable()
    file.function([x], file.call("nn.relu", x))
    main = file.read().functions["main"]
    assert main.parameters[0].type == TensorType((4,), "float32")
    assert isinstance(main.body, Call)
    assert main.body.callee == Operator("nn.relu")
    assert main.body.arguments == main.parameters


def test_version_0_6_has_other_names_and_strings_in_place() -> None:
    file = File("0.6.0")
    shape = file.add("Array", [file.add("IntImm", dtype="int32", value=1), file.add("Any")])
    kind = file.add("relay.TensorType", dtype="float32", shape=shape, span=0)
    variables = [
        file.add("relay.Var", vid=file.add("relay.Id", name_hint=name), type_annotation=kind)
        for name in ("0", "3", "data")
    ]
    sizes = file.add("Array", [file.add("IntImm", dtype="int32", value=3)])
    attrs = file.add("relay.attrs.Conv2DAttrs", kernel_size=sizes, data_layout="NHWC", groups=2)
    operator = file.text("nn.conv2d", "relay.Op", "global_key")
    arguments = file.add("Array", variables[:2])
    conv = file.add("relay.Call", op=operator, args=arguments, attrs=attrs)
    top = file.add("relay.attrs.TopkAttrs", k=2, axis=-1, ret_type="values")
    call = file.call("topk", conv, attrs=top)
    main = file.function(variables, call)
    name = file.add("relay.GlobalVar", name_hint="main")
    functions = file.add("Map", [name, main])
    file.add("relay.Module", functions=functions)
    function = file.read().functions["main"]
    assert [parameter.name for parameter in function.parameters] == ["0", "3", "data"]
    assert function.parameters[0].type == TensorType((1, None), "float32")
    assert isinstance(function.body, Call)
    assert function.body.attributes["k"] == 2
    inner = function.body.arguments[0]
    assert isinstance(inner, Call)
    assert inner.attributes["data_layout"] == "NHWC"
    assert inner.attributes["kernel_layout"] == "OIHW"
    assert inner.attributes["kernel_size"] == (3,)


def test_a_scale_that_is_an_attribute_is_refused() -> None:
    file = File("0.6.0")
    x = file.variable()
    attrs = file.add("relay.attrs.QuantizeAttrs", output_zero_point=0, output_scale=0.5, axis=-1)
    file.function([x], file.call("qnn.quantize", x, attrs=attrs))
    with pytest.raises(UnsupportedOperatorError, match=r"qnn\.quantize has the attribute output_z"):
        file.read()


def test_rearranged_weights_are_refused() -> None:
    file = File()
    x = file.variable()
    layout = file.text("OIHW4i4o")
    attrs = file.add("relay.attrs.Conv2DAttrs", auto_scheduler_rewritten_layout=layout)
    file.function([x], file.call("nn.conv2d", x, x, attrs=attrs))
    with pytest.raises(UnsupportedOperatorError, match="its weights were rearranged"):
        file.read()


def test_attributes_of_an_unknown_class_are_refused() -> None:
    file = File()
    x = file.variable()
    file.function([x], file.call("my.operator", x, attrs=file.add("my.Attrs", axis=1)))
    with pytest.raises(UnsupportedOperatorError, match=r"my\.operator has my\.Attrs"):
        file.read()


def test_a_tensor_that_is_shared_is_one() -> None:
    file = File()
    file.arrays = [np.arange(3, dtype="float32")]
    one, other = (file.add("relay.Constant", data=0) for _ in range(2))
    file.function([], file.call("add", one, other))
    body = file.read().functions["main"].body
    assert isinstance(body, Call)
    first, second = body.arguments
    assert isinstance(first, Constant)
    assert isinstance(second, Constant)
    assert first.value is second.value
    assert first.value.tolist() == [0, 1, 2]


def test_strings_that_cannot_be_printed() -> None:
    file = File()
    saved = base64.b64encode((3).to_bytes(8, "little") + b"x\ny").decode()
    identity = file.add("relay.Id", name_hint=file.text(saved, field="repr_b64"))
    x = file.add("relay.Var", vid=identity)
    file.function([x], x)
    assert file.read().functions["main"].parameters[0].name == "x\ny"


@pytest.mark.parametrize("by_let", [False, True])
def test_chains_may_be_long(by_let: bool) -> None:
    file, count = File(), 20_000
    x = last = file.variable()
    if by_let:
        for _ in range(count):
            last = file.add("relay.Let", var=x, value=x, body=last)
    else:
        for _ in range(count):
            last = file.call("abs", last)
    file.function([x], last)
    body = file.read().functions["main"].body
    length = 0
    while not isinstance(body, Local):
        assert isinstance(body, Let | Call)
        body = body.body if isinstance(body, Let) else body.arguments[0]
        length += 1
    assert length == count


def test_operators_without_attributes_have_their_defaults() -> None:
    file = File()
    x = file.variable()
    file.function([x], file.call("nn.softmax", x))
    body = file.read().functions["main"].body
    assert isinstance(body, Call)
    assert body.attributes == {"axis": -1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"body": "99"}, "node 99 of"),
        ({"body": "-1"}, "node -1 of"),
        ({"body": "x"}, "invalid literal"),
        ({"body": "9" * 5000}, "the number '999"),
        ({"body": "0"}, "NoneType stands where an expression should"),
        ({"params": "0"}, "NoneType stands where a list should, each a variable"),
        ({"body": None}, "is not formed as nodes are"),
    ],
)
def test_wrong_references_are_refused(change: dict[str, Any], said: str) -> None:
    file = File()
    x = file.variable()
    file.function([x], x)
    file.nodes[-1]["attrs"] |= change
    with pytest.raises(ModelFileError) as error:
        file.read()
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "Expecting value"),
        (b"[]", "it holds no nodes"),
        (b"{}", "it has no list of nodes"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"root_index": 1, "nodes": [], "metadata": {}}', "a TVM without Relay"),
        (b'{"nodes": [], "b64ndarrays": []}', "which node is the root"),
        (b'{"root": 0, "nodes": [], "b64ndarrays": []}', "node 0 of 0"),
        (b'{"root": 0, "nodes": [{}], "b64ndarrays": []}', "not formed as nodes are"),
        (b'{"root": 1e3, "nodes": [], "b64ndarrays": []}', "which node is the root"),
        (b'{"root": 0, "nodes": [{"type_key": ""}], "b64ndarrays": []}', "neither a module"),
        (b'\xff{"root": 0}', "utf-8"),
    ],
)
def test_wrong_files_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(ModelFileError) as error:
        read_json(data, "j")
    assert said in str(error.value)


def test_arrays_of_arrays_may_not_go_on_forever() -> None:
    file = File()
    x, axes = file.variable(), file.add("Array")
    for _ in range(5000):
        axes = file.add("Array", [axes])
    attrs = file.add("relay.attrs.TransposeAttrs", axes=axes)
    file.function([x], file.call("transpose", x, attrs=attrs))
    with pytest.raises(ModelFileError, match="values within values without end"):
        file.read()


@pytest.mark.parametrize("of_types", [False, True])
def test_shared_parts_may_not_multiply_without_end(of_types: bool) -> None:
    file = File()
    x, part = file.variable(), file.add("Array")
    for _ in range(30):
        part = file.add("Array", [part, part])
        part = file.add("TupleType", fields=part) if of_types else part
    if of_types:
        y = file.add("relay.Var", vid=file.add("relay.Id", name_hint=0), type_annotation=part)
    else:
        y = file.call("transpose", x, attrs=file.add("relay.attrs.TransposeAttrs", axes=part))
    file.function([x], y)
    with pytest.raises(ModelFileError, match="values within values without end"):
        file.read()


@pytest.mark.parametrize("as_map", [False, True])
def test_a_module_needs_a_map_of_functions(as_map: bool) -> None:
    file = File()
    x = file.variable()
    main = file.function([x], x)
    name = file.add("GlobalVar", name_hint=file.text("main"))
    twice = file.add("Map" if as_map else "Array", [name, main, name, main])
    file.add("IRModule", functions=twice)
    said = "two functions are called main" if as_map else "a list stands where a map should"
    with pytest.raises(ModelFileError, match=said):
        file.read()


def test_a_string_of_another_type_is_refused() -> None:
    file = File()
    x = file.variable()
    file.nodes[x - 2] = {"type_key": "runtime.String", "repr_b64": 5}
    file.function([x], x)
    with pytest.raises(ModelFileError, match="a string that is none"):
        file.read()


def test_places_are_where_the_importer_was() -> None:
    case = relay_corpus.CASES["onnx/if"]
    body = read_json(case.json, case.name).functions["main"].body
    assert isinstance(body, Call)
    assert body.place == "Abs_0"
    assert isinstance(read_json(case.json, case.name).functions["main"], Function)


def test_batched_products_of_old_versions_transpose() -> None:
    file = File("0.7.0")
    x = file.variable()
    file.function([x], file.call("nn.batch_matmul", x, x))
    body = file.read().functions["main"].body
    assert isinstance(body, Call)
    assert body.attributes["transpose_b"] is True


def test_expressions_among_attributes_are_arguments_as_well() -> None:
    file = File()
    x = file.variable()
    attrs = file.add("relay.attrs.ArangeAttrs", start=x, stop=x, step=x, dtype="float32")
    file.function([x], file.call("arange", x, x, x, attrs=attrs))
    body = file.read().functions["main"].body
    assert isinstance(body, Call)
    assert body.attributes["start"] is None
    assert body.attributes["dtype"] == "float32"
