"""A stranger's first ten minutes: models of the user's own, the command line, the errors one meets.

`tools/wheel_check.py` runs it in an empty folder, by a Python where nothing of ours but the wheel
is installed. It needs no GPU, and hides those that there are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

_LOADED = """
import sys
sys.modules["onnx"] = sys.modules["torch"] = None  # as if they were not installed
import numpy as np
import tvm_tile
x, expected = np.load("x.npy"), np.load("expected.npy")
outputs = tvm_tile.load("named.tvmtile")(x)
np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
"""
_REFUSED = "error: --device auto is a GPU of this machine, which must be present"


def main() -> None:
    """Go through all, and raise at what is not as the pages say."""
    assert Path.cwd() not in map(Path, sys.path), "only what is installed is used"
    layers = _numbers((16, 32), (32, 8))
    _save_onnx(Path("mine.onnx"), *layers)
    _command_line()
    _from_python(*layers)
    _from_pytorch()
    _errors()
    print("right: the first ten minutes")


def _numbers(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape).astype("float32") for shape in shapes]


def _save_onnx(path: Path, hidden: np.ndarray, scores: np.ndarray) -> None:
    """Two layers, as a user's own tools write them, whose batch is open."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "hidden"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "scores"], ["y"]),
        ],
        "mine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [numpy_helper.from_array(hidden, "hidden"), numpy_helper.from_array(scores, "scores")],
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def _command_line() -> None:
    """Compile, run and explain a file, emulated, and for a GPU that is absent."""
    _command("--version")
    _command("compile", "mine.onnx", "--device", "emulated", told="axis 0 (batch) is 1")
    _command("run", "mine.tvmtile", told="y: float32 1x8")
    _command("explain", "mine.tvmtile", told="emulated: a run takes")
    _command("compile", "mine.onnx", "--device", "nvidia/h200", "-o", "h200.tvmtile")
    _command("explain", "h200.tvmtile", told="nvidia/h200: a run takes")


def _from_python(hidden: np.ndarray, scores: np.ndarray) -> None:
    """Compile, call and save a file's model, and load it in another process."""
    import tvm_tile

    assert Path(tvm_tile.__file__).is_relative_to(sys.prefix), "the wheel's own files are used"
    model = tvm_tile.compile("mine.onnx", "emulated", inputs={"x": (2, 16)})
    (x,) = _numbers((2, 16))
    expected = np.maximum(x @ hidden, 0) @ scores
    np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-5)
    assert "emulated: a run takes" in str(model.explain())
    model.save("named.tvmtile")
    np.save("x.npy", x)
    np.save("expected.npy", expected)
    subprocess.run([sys.executable, "-c", _LOADED], check=True)


def _from_pytorch() -> None:
    """Compile a PyTorch module by itself, and find the backend of torch.compile by its name."""
    import torch

    import tvm_tile

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
    example = torch.randn(2, 16)
    model = tvm_tile.compile(module, "emulated", example_inputs=(example,))
    torch.testing.assert_close(model(example), module(example))
    fast = torch.compile(module, backend="tvm_tile", options={"device": "emulated"})
    torch.testing.assert_close(fast(example), module(example))


def _errors() -> None:
    """Meet the errors that `docs/trouble.md` lists, with the exit statuses of the command line."""
    import tvm_tile

    emulated = ("--device", "emulated")
    _command("compile", "mine.onnx", status=4, told=_REFUSED)
    _command("run", "h200.tvmtile", status=4, told="its driver must be present")
    _command("compile", "missing.onnx", *emulated, status=2, told="missing.onnx is missing")
    _command("compile", "mine.onnx", "--device", "nvidia/h20", status=2, told="mean nvidia/h200?")
    folder = "the folder of the output must exist"
    _command("compile", "mine.onnx", *emulated, "-o", "none/mine.tvmtile", status=2, told=folder)
    for action, told in (
        (lambda: tvm_tile.load("named.tvmtile").save("none/mine.tvmtile"), folder),
        (lambda: tvm_tile.load("mine.onnx"), "mine.onnx is a model that is not compiled"),
    ):
        try:
            action()
            found = "no error"
        except tvm_tile.SavedModelError as error:
            found = str(error)
        assert told in found, f"not told: {told}, but: {found}"


def _command(*words: str, status: int = 0, told: str = "") -> None:
    """Run `tvm-tile`, and raise if it ends otherwise, or does not say what is expected."""
    print("$ tvm-tile", *words, flush=True)
    script = Path(sys.executable).with_name("tvm-tile")
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    done = subprocess.run([script, *words], env=environment, capture_output=True, text=True)
    print(done.stdout + done.stderr, end="", flush=True)
    assert done.returncode == status, f"status {done.returncode}, not {status}"
    assert told in done.stdout + done.stderr, f"not told: {told}"


if __name__ == "__main__":
    main()
