"""Models for tests and benchmarks: trained ones inside PyPI packages, and random ones.

Nothing is downloaded. Each entry builds a model together with inputs and the outputs that
ONNX Runtime (ONNX models) or PyTorch in float32 (modules) computes from them.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SEED = 20231

Arrays = tuple[np.ndarray, ...]
Sizes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """A model with inputs and reference outputs, ready for ``tvm_tile.compile``.

    Attributes:
        model: an ``onnx.ModelProto`` or a ``torch.nn.Module`` in evaluation mode.
        arrays: inputs, in the model's order.
        reference: outputs, in the model's order.
        sizes: the ``inputs=`` argument for models with open extents.
    """

    model: Any
    arrays: Arrays
    reference: Arrays
    sizes: Sizes = field(default_factory=dict)

    @property
    def example_inputs(self) -> tuple[Any, ...] | None:
        """The inputs as torch tensors, for modules; ``None`` for ONNX models."""
        if "onnx" in type(self.model).__module__:
            return None
        import torch

        return tuple(torch.from_numpy(array) for array in self.arrays)


@dataclass(frozen=True, slots=True)
class Entry:
    """A model by name: the packages it needs, and how to build it."""

    name: str
    requires: tuple[str, ...]
    build: Callable[[], Case]

    def missing(self) -> tuple[str, ...]:
        """The needed packages that are not installed."""
        return tuple(name for name in self.requires if importlib.util.find_spec(name) is None)


def relative_error(output: np.ndarray, reference: np.ndarray) -> float:
    """The norm of the difference over the norm of the reference, in double precision."""
    reference = np.asarray(reference, np.float64)
    difference = np.asarray(output, np.float64) - reference
    scale = np.linalg.norm(reference)
    return float(np.linalg.norm(difference) / (scale if scale > 0 else 1.0))


# --- trained ONNX models inside PyPI packages --------------------------------------------------


def nudenet() -> Case:
    """YOLOv8n detector, 320×320."""
    image = _rng().random((1, 3, 320, 320), np.float32)
    return _onnx_case(_load("nudenet", "320n.onnx"), {"images": image})


def text_detector(size: int = 320) -> Case:
    """PP-OCRv4's text detector on a drawn word."""
    image = np.ones((size, size), np.float32)
    word = _draw("TILES", scale=size // 40)
    top, left = (size - word.shape[0]) // 2, (size - word.shape[1]) // 2
    image[top : top + word.shape[0], left : left + word.shape[1]] -= 2 * word
    model = _load("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx")
    return _onnx_case(model, {"x": np.tile(image, (1, 3, 1, 1))})


def magika() -> Case:
    """Type of a file from its first and last 1024 bytes; 256 fills up."""
    text = b"import os\n\n\ndef main(path):\n    return os.stat(path).st_size\n" * 8
    padded = np.full((2, 1024), 256, np.int32)
    padded[0, : len(text)] = np.frombuffer(text, np.uint8)
    padded[1, -len(text) :] = np.frombuffer(text, np.uint8)
    model = _load("magika", "models/standard_v3_3/model.onnx")
    return _onnx_case(model, {"bytes": padded.reshape(1, 2048)})


def silero_vad() -> Case:
    """Voice activity in 36 ms of 16 kHz sound, here a buzz with four harmonics."""
    import onnx

    model = _load("silero_vad", "data/silero_vad_op18_ifless.onnx")
    # The sampling rate chooses between two networks; it is a constant of any application.
    rate = next(value for value in model.graph.input if value.name == "sr")
    model.graph.input.remove(rate)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(16000), "sr"))
    seconds = np.arange(576) / 16000
    sound = sum(np.sin(2 * np.pi * 140 * k * seconds) / k for k in (1, 2, 3, 4))
    state = _normal((2, 1, 128), 0.1)
    return _onnx_case(model, {"input": 0.3 * sound[None].astype(np.float32), "state": state})


def light(name: str) -> Case:
    """One of onnx's test networks; their weights, all equal as shipped, are drawn at random."""
    model = _load("onnx", f"backend/test/data/light/light_{name}.onnx")
    _randomize_weights(model.graph)
    return _onnx_case(model, {"gpu_0/data_0": _normal((1, 3, 224, 224))})


def _load(package: str, file: str) -> Any:
    import onnx

    spec = importlib.util.find_spec(package)  # the package itself may need more than its file
    assert spec is not None
    assert spec.origin is not None
    return onnx.load(Path(spec.origin).parent / file)


def _onnx_case(model: Any, inputs: dict[str, np.ndarray]) -> Case:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    reference = tuple(session.run(None, inputs))
    sizes = {name: array.shape for name, array in inputs.items()}
    return Case(model, tuple(inputs.values()), reference, sizes)


def _randomize_weights(graph: Any) -> None:
    """Replace every ``ConstantOfShape`` by a random initializer that keeps values in range."""
    import onnx

    users = {name: (node, i) for node in graph.node for i, name in enumerate(node.input)}
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    rng = _rng()
    for node in [node for node in graph.node if node.op_type == "ConstantOfShape"]:
        user, position = users[node.output[0]]
        shape = tuple(int(extent) for extent in shapes[node.input[0]])
        if len(shape) > 1:
            # The last layer's are smaller, or its softmax would say 1 for one class, 0 elsewhere.
            scale = 0.03 if user.op_type == "Gemm" else 1.0
            values = rng.standard_normal(shape) * scale / np.sqrt(np.prod(shape[1:]))
        elif user.op_type == "BatchNormalization" and position in (1, 4):  # scale, variance
            values = rng.uniform(0.8, 1.2, shape)
        else:  # bias, mean
            values = rng.uniform(-0.1, 0.1, shape)
        graph.initializer.append(
            onnx.numpy_helper.from_array(values.astype(np.float32), node.output[0])
        )
        graph.node.remove(node)


_LETTERS = {
    "T": ("11111", "00100", "00100", "00100", "00100", "00100", "00100"),
    "I": ("01110", "00100", "00100", "00100", "00100", "00100", "01110"),
    "L": ("10000", "10000", "10000", "10000", "10000", "10000", "11111"),
    "E": ("11111", "10000", "10000", "11110", "10000", "10000", "11111"),
    "S": ("01111", "10000", "10000", "01110", "00001", "00001", "11110"),
}


def _draw(word: str, scale: int) -> np.ndarray:
    """The word in block letters: 1 is ink; each letter's pixel is ``scale`` pixels wide."""
    rows = ["0".join(_LETTERS[letter][row] for letter in word) for row in range(7)]
    pixels = np.array([[float(pixel) for pixel in row] for row in rows], np.float32)
    return np.kron(pixels, np.ones((scale, scale), np.float32))


# --- randomly initialized modules --------------------------------------------------------------


def timm_model(name: str, size: int, batch: int = 1, **options: Any) -> Case:
    """An image classifier of the timm library."""
    from bench.suites.networks.timm_library import classifier

    module = _seeded(lambda: classifier(name, **options))
    return _module_case(module, (_normal((batch, 3, size, size)),))


def bert(layers: int, hidden: int, heads: int, tokens: int, batch: int = 1) -> Case:
    """A BERT encoder from token numbers to hidden states."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=1000,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )
    module = _seeded(lambda: _hidden_states(transformers.BertModel(config)))
    return _module_case(module, (_rng().integers(0, 1000, (batch, tokens)),))


def _hidden_states(encoder: Any) -> Any:
    import torch

    class HiddenStates(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, token_ids: Any) -> Any:
            return self.encoder(input_ids=token_ids).last_hidden_state

    return HiddenStates()


def lstm_cell(inputs: int = 64, hidden: int = 128, batch: int = 4) -> Case:
    """One step of an LSTM: (x, h, c) to (h, c)."""
    import torch

    class Cell(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.LSTMCell(inputs, hidden)

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            return self.cell(x, (h, c))

    state = (_normal((batch, hidden)), _normal((batch, hidden), 2.0))
    return _module_case(_seeded(Cell), (_normal((batch, inputs)), *state))


def _module_case(module: Any, arrays: Arrays) -> Case:
    import torch

    with torch.no_grad():
        outputs = module(*(torch.from_numpy(array) for array in arrays))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return Case(module, arrays, tuple(output.numpy() for output in outputs))


def _seeded(make: Callable[[], Any]) -> Any:
    """A module in evaluation mode whose statistics are not the trivial ones of a new module."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        module = make().eval()
        for layer in module.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                torch.nn.init.uniform_(layer.weight, 0.8, 1.2)
                torch.nn.init.uniform_(layer.bias, -0.1, 0.1)
                layer.running_mean.uniform_(-0.1, 0.1)
                layer.running_var.uniform_(0.8, 1.2)
    return module


def _rng() -> np.random.Generator:
    return np.random.default_rng(SEED)


def _normal(shape: tuple[int, ...], scale: float = 1.0) -> np.ndarray:
    return (_rng().standard_normal(shape) * scale).astype(np.float32)


ONNX_MODELS: tuple[Entry, ...] = (
    Entry("nudenet", ("onnxruntime", "nudenet"), nudenet),
    Entry("text_detector", ("onnxruntime", "rapidocr_onnxruntime"), text_detector),
    Entry("magika", ("onnxruntime", "magika"), magika),
    Entry("silero_vad", ("onnxruntime", "silero_vad"), silero_vad),
    Entry("light_shufflenet", ("onnxruntime",), partial(light, "shufflenet")),
)

# Small sizes: on a machine without a GPU these run in seconds.
SMALL_MODULES: tuple[Entry, ...] = (
    Entry("resnet18", ("torch", "timm"), partial(timm_model, "resnet18", 96)),
    Entry("mobilenetv2", ("torch", "timm"), partial(timm_model, "mobilenetv2_100", 96)),
    Entry("bert_2_layers", ("torch", "transformers"), partial(bert, 2, 256, 4, 32)),
    Entry("vit_tiny", ("torch", "timm"), partial(timm_model, "vit_tiny_patch16_224", 224)),
    Entry("lstm_cell", ("torch",), lstm_cell),
)

TEST_MODELS = ONNX_MODELS + SMALL_MODULES
