"""The pages of the documentation, their blocks of code, and the files that these are about.

A comment ahead of a block says what else than running it is to be done:

* ``<!-- not run: WHY -->``
* ``<!-- without a GPU: emulated -->``: in place of the NVIDIA GPU that the block names
* ``<!-- without a GPU: DeviceAbsentError -->``: what it raises
* ``<!-- printed -->``: it is what the block of Python before it prints
* ``<!-- printed by lesson 05 -->``
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from relay_corpus import CASES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LESSONS = sorted((ROOT / "tutorials").glob("[0-9]*.py"))

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^>]*) -->\n\n?)?"
    r"^(?P<fence>```+)(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between two fences, and what is said of it ahead of them."""

    language: str
    code: str
    mark: str


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(block["language"], block["code"], block["mark"] or "") for block in found]


def without_numbers(text: str) -> str:
    """Numbers are the model's, names hold sums of contents: what is left is what is told."""
    return re.sub(r"\s+", " ", re.sub(r"_[0-9a-f]{8,}|[0-9.]+", "#", text))


def without_clock(text: str) -> str:
    """Of the wall clock's times only that they are told: they differ from run to run."""
    stages = re.sub(r"^( *compiled +in ).*$", r"\1...", text, flags=re.MULTILINE)
    return re.sub(r"\b\d+\.\d+ s\b", "... s", stages)


def printed_by(lesson: Path) -> Path:
    """The file with what a lesson prints; its drawings lie beside it."""
    return lesson.parent / "output" / lesson.stem / "printed.txt"


def save_models(folder: Path) -> None:
    """The files that the pages are about, small: three ONNX files, and a Relay program."""
    _save_detector(folder / "detector.onnx")
    _save_int4(folder / "int4.onnx")
    _save_int8(folder / "int8.onnx")
    program = CASES["zoo/mlp"].folder
    shutil.copy(program / "model.relay", folder / "model.relay")
    shutil.copy(program / "params.bin", folder / "model.params")


def _save_detector(path: Path) -> None:
    """A model whose sizes are open."""
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


def _save_int4(path: Path) -> None:
    """A product with a matrix of codes of 4 bits, in groups of 128."""
    shape = [512, 256]
    codes = helper.make_tensor("q", TensorProto.INT4, shape, bytes(range(256)) * 256, raw=True)
    scales = numpy_helper.from_array(
        np.linspace(0.01, 0.02, 1024, dtype="float16").reshape(4, 256), "s"
    )
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


def _save_int8(path: Path) -> None:
    """A product whose rows are rounded to codes of 8 bits, as its matrix was."""
    shape = [512, 256]
    codes = np.arange(512 * 256).reshape(shape).astype("int8")
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["rounded"]),
            helper.make_node("DequantizeLinear", ["codes", "s", "z"], ["w"]),
            helper.make_node("MatMul", ["rounded", "w"], ["y"]),
        ],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [128, 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [128, 256])],
        [
            numpy_helper.from_array(codes, "codes"),
            numpy_helper.from_array(np.float32(0.05), "s"),
            numpy_helper.from_array(np.int8(0), "z"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    onnx.save(model, path)
