"""The command line, on a small ONNX model and the emulated device."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_tile.cli import main
from tvm_tile.cli.run import describe_array, write_arrays
from tvm_tile.device import devices
from tvm_tile.device.detect import read_gpu

WEIGHTS = np.arange(32, dtype="float32").reshape(4, 8) / 32


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "weights"], ["product"]),
            helper.make_node("Relu", ["product"], ["y"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [numpy_helper.from_array(WEIGHTS, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(model, path)
    return path


def open_model_of(path: Path) -> onnx.ModelProto:
    """A model of one operator, whose second extent nothing tells."""
    model = onnx.load(path)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "width"])
    model.graph.input[0].CopyFrom(x)
    del model.graph.node[0], model.graph.initializer[:]
    model.graph.node[0].input[0] = "x"
    return model


@pytest.mark.parametrize("command", ["compile", "run", "explain", "verify", "schedule"])
def test_the_first_command_works_where_a_batch_is_open(
    command: str,
    onnx_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, str(onnx_file), "--device", "emulated"]) == 0
    captured = capsys.readouterr()
    told = captured.out if command == "explain" else captured.err
    assert "note: input 'x' is compiled as --input x=1x4" in told or command == "schedule"


@pytest.mark.skipif(read_gpu() is not None, reason="there is a GPU")
def test_a_missing_gpu_has_a_status_of_its_own(
    onnx_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", str(onnx_file), "-o", str(tmp_path / "x.tvmtile")]) == 4
    message = capsys.readouterr().err
    assert "--device nvidia/h200" in message
    assert "--device emulated" in message
    saved = tmp_path / "h200.tvmtile"
    words = ["compile", str(onnx_file), "--device", "nvidia/h200", "-o", str(saved)]
    assert main(words) == 0
    assert main(["run", str(saved)]) == 4
    assert "--device emulated" in capsys.readouterr().err


@pytest.fixture(scope="module")
def saved(onnx_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "small.tvmtile"
    words = ["compile", str(onnx_file), "--device", "emulated", "--input", "x=3x4"]
    assert main([*words, "-o", str(path)]) == 0
    return path


def test_compile_saves_and_tells_a_log_one_line(
    onnx_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "small.tvmtile"
    words = ["compile", str(onnx_file), "--device", "emulated", "--input", "x=2x4"]
    assert main([*words, "-o", str(path)]) == 0
    captured = capsys.readouterr()
    assert path.is_file()
    assert captured.out.startswith(f"{path}: ")
    assert re.search(r"kernels for emulated, \d{1,3}(\.\d+)? KB$", captured.out)
    assert re.fullmatch(r"built \d+ kernels in \d+\.\d s\n", captured.err)


def test_the_output_is_named_after_the_model(
    onnx_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compile", str(onnx_file), "--device", "emulated", "--input", "x=2x4"]) == 0
    assert (tmp_path / "small.tvmtile").is_file()


def test_run_reads_and_writes_arrays(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "y.npz"
    words = ["run", str(saved), "--input-file", str(tmp_path / "x.npy"), "-o", str(out), "--time"]
    assert main(words) == 0
    np.testing.assert_allclose(np.load(out)["y"], np.maximum(x @ WEIGHTS, 0), rtol=1e-5)
    captured = capsys.readouterr()
    assert captured.out.startswith("y: float32 3x8, from 0 to ")
    assert "one call, emulated, which says nothing about any GPU: " in captured.out
    assert captured.err == "emulated: the CPU runs the GPU's kernels, slowly\n"


def test_run_compiles_a_model_and_makes_the_same_random_inputs(
    onnx_file: Path, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(onnx_file), "--device", "emulated", "--input", "x=3x4"]) == 0
    compiled = capsys.readouterr().out
    assert main(["run", str(saved)]) == 0
    assert capsys.readouterr().out == compiled
    assert main(["run", str(saved), "--seed", "1"]) == 0
    assert capsys.readouterr().out != compiled


def test_explain_prints_the_report(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(saved)]) == 0
    screen = capsys.readouterr().out.splitlines()
    assert screen[0].startswith("emulated: a run takes ")
    assert len(screen) <= 40
    assert main(["explain", str(saved), "--detail", "kernels", "--sort", "name"]) == 0
    assert "rule" in capsys.readouterr().out.splitlines()[0]


def test_explain_tells_other_programs(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(saved), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["device"] == "emulated"
    assert all(kernel["computes"] for kernel in told["kernels"])


@pytest.mark.parametrize("asked", [["--detail", "kernel"], ["--sort", "size"]])
def test_what_cannot_be_told_is_refused(
    saved: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(saved), *asked]) == 2
    assert f"{asked[0]} is one of" in capsys.readouterr().err


def test_explain_draws(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "groups.svg"
    assert main(["explain", str(saved), "--svg", str(path)]) == 0
    assert path.read_text(encoding="utf-8").startswith("<svg ")
    link = tmp_path / "link.svg"
    link.symlink_to(path)
    path.write_text("old")
    assert main(["explain", str(saved), "--svg", str(link)]) == 0
    assert link.is_symlink()
    assert path.read_text(encoding="utf-8").startswith("<svg ")


def test_schedule_prints_tensor_ir(onnx_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["schedule", str(onnx_file), "--device", "emulated", "--input", "x=3x4"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "prim_func" in out
    assert "threadIdx.x" in out
    assert main([*words, "--kernel", "matmul"]) == 2
    message = capsys.readouterr().err
    assert "remedy: use fused_matmul_relu_" in message
    name = message.partition("remedy: use ")[2].partition(";")[0]
    assert main([*words, "--kernel", name]) == 0
    assert capsys.readouterr().out == out


def test_devices_lists_every_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    heading, *rows, auto = capsys.readouterr().out.splitlines()
    assert heading.startswith("device")
    assert [row.split()[0] for row in rows] == [device.name for device in devices()]
    assert auto.startswith("auto is ")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["compile", "{missing}", "--device", "emulated"], "missing.onnx"),
        (["compile", "{broken}", "--device", "emulated"], "broken.onnx"),
        (["compile", "{model}", "--device", "nvidia/h2000"], "did you mean nvidia/h200?"),
        (["compile", "{open}", "--device", "emulated"], "--input 'x=1x<width>'"),
        (["compile", "{model}", "-o", "/no/such/folder/x"], "/no/such/folder"),
        (["compile", "{saved}"], "must not be compiled yet"),
        (["run", "{broken_saved}"], "broken.tvmtile"),
        (["run", "{saved}", "--input", "x=1x4"], "--input was given"),
        (["run", "{saved}", "--topk", "3"], "--topk was given"),
        (["run", "{saved}", "--low-bit", "none"], "--low-bit was given"),
        (["run", "{saved}", "--max-loss", "0"], "--max-loss was given"),
        (["compile", "{model}", "--max-loss", "-0.1"], "max_loss must be a number"),
        (["run", "{model}", "--verify-key", "k.pem", "--input", "x=3x4"], "--verify-key was given"),
        (["run", "{saved}", "--verify-key", "{missing}"], "not signed"),
        (["compile", "{missing_exported}", "--device", "emulated"], "missing.pt2"),
        (["compile", "{model}", "--cache", ""], "cache must be a folder"),
        (["sign", "{missing}", "--key", "{missing}"], "no file"),
        (["compile", "{model}", "-o", "{folder}"], "is a folder"),
        (["explain", "{saved}", "--device", "nvidia/h200"], "--device was given"),
        (["run", "{saved}", "--input-file", "{missing}"], "missing.onnx"),
        (["run", "{saved}", "--input-file", "{wrong}"], "(3, 4)"),
    ],
)
def test_an_error_is_explained_without_a_traceback(
    words: list[str],
    problem: str,
    onnx_file: Path,
    saved: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = {
        "model": onnx_file,
        "saved": saved,
        "missing": tmp_path / "missing.onnx",
        "missing_exported": tmp_path / "missing.pt2",
        "folder": tmp_path,
        "broken": tmp_path / "broken.onnx",
        "open": tmp_path / "open.onnx",
        "broken_saved": tmp_path / "broken.tvmtile",
        "wrong": tmp_path / "wrong.npy",
    }
    paths["broken"].write_bytes(b"not a model")
    onnx.save(open_model_of(onnx_file), paths["open"])
    paths["broken_saved"].write_bytes(b"not a saved model")
    np.save(paths["wrong"], np.zeros((1, 4), "float32"))
    assert main([word.format_map(paths) for word in words]) == 2
    message = capsys.readouterr().err
    assert message.startswith("tvm-tile: error: ")
    assert problem in message
    assert "found:" in message
    assert "remedy:" in message


@pytest.mark.parametrize("shape", ["x", "x=1y2", "=1x2", "x=1x-2"])
def test_a_malformed_shape_is_refused_by_the_parser(
    shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["run", "m.onnx", "--input", shape])
    assert exit_.value.code == 2
    assert "does not look like NAME=1x3x320x320" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["run", "m", "--seed", "-1"], ["compile", "m", "--topk", "1.5"], ["sign", "m"]]
)
def test_wrong_words_are_refused_by_the_parser(words: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(words)
    assert exit_.value.code == 2


def test_any_name_of_an_output_can_be_written(tmp_path: Path) -> None:
    arrays = {"file": WEIGHTS, "a/b": np.array(True), "../up": np.zeros((0, 2))}
    write_arrays(arrays, tmp_path / "all.npz")
    with np.load(tmp_path / "all.npz") as found:
        assert set(found.files) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
    assert describe_array(np.array([True, False])) == "bool 2, from 0 to 1, mean 0.5"


def test_a_torch_program_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    program = torch.export.export(torch.nn.ReLU(), (torch.zeros(2, 3),))
    torch.export.save(program, tmp_path / "m.pt2")
    assert main(["run", str(tmp_path / "m.pt2"), "--device", "emulated", "--cache", "none"]) == 0
    assert "float32 2x3" in capsys.readouterr().out


def test_ctrl_c_is_one_line_and_status_130(onnx_file: Path) -> None:
    # Once it has TVM, it is amid compiling.
    code = (
        "import sys, threading, os, signal, time\n"
        "from tvm_tile.cli import main\n"
        "def interrupt():\n"
        "    while 'tvm_tile.pipeline' not in sys.modules: time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        "sys.argv[1:] = sys.argv[2:]\n"
        "sys.exit(main())\n"
    )
    words = ["-", "run", str(onnx_file), "--device", "emulated", "--input", "x=3x4"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "tvm-tile: interrupted\n")


def test_help_needs_no_tvm() -> None:
    code = (
        "import sys; from tvm_tile.cli import main\n"
        "try: main(['--help'])\n"
        "finally: assert not {'tvm', 'numpy', 'rich'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "schedule" in done.stdout
