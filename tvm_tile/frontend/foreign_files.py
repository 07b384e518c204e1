"""Files of models in formats that are not read: which, and how to come to one that is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_START = 16


@dataclass(frozen=True, slots=True)
class ForeignFormat:
    """A format of models that is not read.

    Attributes:
        name: for people.
        remedy: how to come from it to a model that is read.
        suffixes: of its files' names.
        magic: bytes that its files have, or empty where they have none of their own.
        offset: where they have these.
    """

    name: str
    remedy: str
    suffixes: tuple[str, ...]
    magic: bytes = b""
    offset: int = 0


_EXPORT = "load it in PyTorch, and pass what torch.export.export makes of the module"
_FORMATS = (
    ForeignFormat("a saved model of tvm_tile", "load it with tvm_tile.load", (".tvmtile",)),
    ForeignFormat(
        "TensorFlow Lite",
        "convert it with tf2onnx: python -m tf2onnx.convert --tflite FILE --output model.onnx",
        (".tflite", ".lite"),
        b"TFL3",
        4,
    ),
    ForeignFormat(
        "Keras (HDF5)",
        "load it in Keras, and write ONNX: model.export(PATH, format='onnx')",
        (".h5", ".hdf5", ".keras"),
        b"\x89HDF",
    ),
    ForeignFormat("GGUF", f"{_EXPORT}: GGUF has weights, not operators", (".gguf",), b"GGUF"),
    ForeignFormat(
        "safetensors",
        f"{_EXPORT}: the file has weights, not operators",
        (".safetensors",),
        b'{"',
        8,
    ),
    ForeignFormat(
        "a checkpoint or TorchScript of PyTorch", _EXPORT, (".pt", ".pth", ".ckpt", ".bin"), b"PK"
    ),
    ForeignFormat("a pickle of Python", _EXPORT, (".pkl", ".pickle"), b"\x80"),
    ForeignFormat(
        "a TensorRT engine",
        "pass the model that it was built from: an engine is machine code",
        (".engine", ".plan", ".trt"),
        b"ftrt",
    ),
    ForeignFormat(
        "TensorFlow",
        "convert it with tf2onnx: python -m tf2onnx.convert --saved-model FOLDER --output "
        "model.onnx",
        (".pb", ".pbtxt"),
    ),
    ForeignFormat("Core ML", "export the original to ONNX", (".mlmodel", ".mlpackage")),
    ForeignFormat("OpenVINO", "pass the model that it was converted from", (".xml",), b"<?xml"),
    ForeignFormat(
        "Paddle",
        "convert it with paddle2onnx",
        (".pdmodel", ".pdparams"),
    ),
    ForeignFormat("Caffe", "convert it to ONNX", (".caffemodel", ".prototxt")),
)


def foreign_format(path: Path) -> ForeignFormat | None:
    """What a file is that could not be read as a model: by its name, or else by what it holds.

    Args:
        path: of a file or a folder; links are followed.
    """
    suffix = ".pb" if (path / "saved_model.pb").exists() else path.suffix.lower()
    by_name = (one for one in _FORMATS if suffix in one.suffixes)
    if (named := next(by_name, None)) is not None or not path.is_file():
        return named
    with path.open("rb") as file:
        start = file.read(_START)
    found = (one for one in _FORMATS if one.magic and start[one.offset :].startswith(one.magic))
    return next(found, None)
