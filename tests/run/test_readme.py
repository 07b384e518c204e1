"""The README's code runs as it is printed, one block after the other, on a small model."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from relay_corpus import CASES
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

from tvm_tile.cli.parser import build_parser
from tvm_tile.device.detect import read_gpu
from tvm_tile.errors import DeviceAbsentError

README = (Path(__file__).parent.parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
IMAGE = np.ones((1, 3, 320, 320), "float32")


def save_detector(path: Path) -> None:
    """A model with open sizes, as that of the first block has."""
    shape = ["batch", 3, "height", "width"]
    weights = np.ones((2, 3, 5, 5), "float32")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["images", "w"], ["y"], strides=[16, 16])],
        "detector",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2, "h", "w"])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    onnx.save(model, path)


def save_int4(path: Path) -> None:
    """A product with a matrix of codes of 4 bits, in groups of 128."""
    shape = [512, 256]
    codes = helper.make_tensor("q", TensorProto.INT4, shape, bytes(512 * 256 // 2), raw=True)
    scales = numpy_helper.from_array(np.ones((4, 256), "float16"), "s")
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=128),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1, 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [1, 256])],
        [codes, scales],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    onnx.save(model, path)


def legalized() -> tvm.IRModule:
    mod = relax_module(lambda x, y: op.nn.relu(op.matmul(x, y)), ((64, 64), (64, 64)))
    stages = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}):
        return tvm.transform.Sequential(stages)(mod)


def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_detector(tmp_path / "detector.onnx")
    save_int4(tmp_path / "int4.onnx")
    program = CASES["zoo/mlp"].folder
    shutil.copy(program / "model.relay", tmp_path / "model.relay")
    shutil.copy(program / "params.bin", tmp_path / "model.params")
    mod = legalized()
    functions = (f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc))
    names: dict[str, Any] = {"image": IMAGE, "mod": mod, "prim_func": next(functions)}
    gpu = read_gpu()
    first, *others = BLOCKS
    # All but the first block say what they do without a GPU.
    exec(first if gpu else first.replace("nvidia/h200", "emulated"), names)
    assert names["outputs"].shape == (1, 2, 20, 20)
    assert (tmp_path / "detector.tvmtile").is_file()
    for block in others:
        if "Options(topk" in block and gpu is None:
            with pytest.raises(DeviceAbsentError):
                exec(block, names)
        else:
            exec(block, names)
    assert {"gantt", "executable", "ScheduleTiles", "choice"} <= names.keys()


def test_every_command_is_one() -> None:
    commands = re.findall(r"^(?:    )?tvm-tile .*$", README, re.MULTILINE)
    words = [shlex.split(command, comments=True)[1:] for command in commands]
    assert {line[0] for line in words} == {
        "compile", "run", "explain", "profile", "compare", "verify", "schedule", "sign",
        "devices", "calibrate", "doctor", "cache", "completion",
    }  # fmt: skip
    for line in words:
        build_parser().parse_args(line)
