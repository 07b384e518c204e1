"""What the command line tells of wrong names and files, and how much it tells at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_command_line import onnx_file  # noqa: F401

import tvm_tile
from tvm_tile.cli import main
from tvm_tile.errors import InputError, ModelFileError, OptionError
from tvm_tile.stages.forced import Forced

COMPILE = "--device", "emulated", "--input"


@pytest.mark.parametrize(
    ("words", "meant", "status"),
    [
        (["--device", "nvidia/h20"], "did you mean nvidia/h200?", 2),
        ([*COMPILE, "xx=3x4"], "did you mean x?", 2),
        ([*COMPILE, "X=[1:4]x4"], "did you mean x?", 2),
        ([*COMPILE, "x=3x4", "--topk", "2"], "say nothing about any GPU", 4),
    ],
)
def test_a_wrong_name_is_answered_with_the_one_that_is_like_it(
    words: list[str],
    meant: str,
    status: int,
    onnx_file: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", str(onnx_file), *words]) == status
    assert meant in capsys.readouterr().err


def test_a_wrong_word_of_an_option_and_a_wrong_input_of_a_call(onnx_file: Path) -> None:  # noqa: F811
    with pytest.raises(OptionError, match="did you mean kernel"):
        Forced(control="kernels")  # type: ignore[arg-type]
    model = tvm_tile.compile(onnx_file, "emulated", inputs={"x": (3, 4)})
    with pytest.raises(InputError, match=r"did you mean x\?"):
        model(xx=0)


@pytest.mark.parametrize(
    ("name", "content", "format_name"),
    [
        ("m.tflite", b"\x20\0\0\0TFL3", "TensorFlow Lite"),
        ("m.onnx", b"\x20\0\0\0TFL3" + bytes(100), "TensorFlow Lite"),
        ("m.h5", b"\x89HDF\r\n\x1a\n", "Keras"),
        ("m", b"GGUF\3\0\0\0", "GGUF"),
        ("m.safetensors", b'\x08\0\0\0\0\0\0\0{"a": 1}', "safetensors"),
        ("m.pth", b"PK\3\4", "PyTorch"),
        ("m.pb", b"\n\x05hello", "TensorFlow"),
        ("m.pkl", b"\x80\4.", "pickle"),
        ("m.engine", b"ftrt", "TensorRT"),
        ("m.mlmodel", b"", "Core ML"),
        ("m.tvmtile", b"", "saved model of tvm_tile"),
    ],
)
def test_a_format_that_is_not_read_is_named(
    name: str, content: bytes, format_name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=format_name):
        tvm_tile.compile(path, "emulated")


def test_a_folder_of_tensorflow_is_named_and_an_onnx_model_is_not(
    onnx_file: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ModelFileError, match="TensorFlow"):
        tvm_tile.compile(tmp_path, "emulated")
    (tmp_path / "broken.onnx").write_bytes(onnx_file.read_bytes()[:-20])
    with pytest.raises(ModelFileError, match="must be a valid ONNX model"):
        tvm_tile.compile(tmp_path / "broken.onnx", "emulated")


def test_quiet_and_verbose(onnx_file: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    words = ["run", str(onnx_file), *COMPILE, "x=3x4"]
    told = {}
    for option in ("--quiet", "--verbose"):
        assert main([*words, option]) == 0
        told[option] = capsys.readouterr()
    assert told["--quiet"].out == told["--verbose"].out
    assert told["--quiet"].err == ""
    assert re.search(
        r"^\[1/\d+\] .*^machine code: \d+\.\d\d s$", told["--verbose"].err, re.M | re.S
    )


def test_verbose_errors_have_tracebacks_and_faults_always(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing.onnx")
    assert main(["sign", missing, "--key", missing, "--verbose"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("Traceback")
    assert "\ntvm-tile: error: " in message

    def faulty(*_: object) -> None:
        raise KeyError("never seen")

    monkeypatch.setattr("tvm_tile.runtime.artifact.sign", faulty)
    assert main(["sign", missing, "--key", missing]) == 70
    assert "internal error: 'never seen'" in capsys.readouterr().err
