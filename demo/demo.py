"""Compile a trained detector, run it on a photograph, and compare with ONNX Runtime.

The model is NudeNet's YOLOv8n, 320 × 320, and the photograph is Grace Hopper's portrait from
Matplotlib's sample data; both lie inside Python packages, so nothing is downloaded here.
Without a GPU the model is compiled for an H200 (machine code that cannot run here), and the
same schedules run on this machine's CPU, emulated.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

import tvm_tile
from tvm_tile.cli.progress import ConsoleProgress
from tvm_tile.device.detect import detect_device

SIZE = 320
TOLERANCE = 1e-4
# The classes of the model that a portrait can show, by number.
FACES = {1: "a woman's face", 12: "a man's face"}


def packaged_file(package: str, *parts: str) -> Path:
    """A file that a Python package ships; the package itself is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        sys.exit(f"{package} is not installed; `make demo` installs it")
    return Path(spec.origin).parent.joinpath(*parts)


def read_photograph(path: Path) -> np.ndarray:
    """The picture as the model wants it: float32 1 × 3 × 320 × 320, 0 to 1, padded to a square."""
    picture = Image.open(path).convert("RGB")
    side = max(picture.size)
    square = Image.new("RGB", (side, side))
    square.paste(picture)
    pixels = np.asarray(square.resize((SIZE, SIZE)), dtype="float32") / 255
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def describe_detection(output: np.ndarray) -> str:
    """The most certain detection of a 1 × (4 + classes) × anchors output, in words."""
    boxes, scores = output[0, :4], output[0, 4:]
    kind, anchor = np.unravel_index(scores.argmax(), scores.shape)
    x, y, width, height = boxes[:, anchor]
    label = FACES.get(int(kind), f"class {kind}")
    return (
        f"{label}, score {scores[kind, anchor]:.2f}, "
        f"{width:.0f} × {height:.0f} pixels around ({x:.0f}, {y:.0f})"
    )


def compile_for(device: str, model_file: Path) -> tvm_tile.CompiledModel:
    """Compile the model for one device, and say how long it took."""
    print(f"\n== Compiling {model_file.name} for {device}", flush=True)
    start = time.perf_counter()
    with ConsoleProgress() as progress:
        model = tvm_tile.compile(
            model_file, device=device, inputs={"images": (1, 3, SIZE, SIZE)}, progress=progress
        )
    print(f"{len(model.report.kernels)} kernels in {time.perf_counter() - start:.1f} s", flush=True)
    return model


def main() -> int:
    """Run the demo; 1 when the results differ from ONNX Runtime's."""
    model_file = packaged_file("nudenet", "320n.onnx")
    photograph = packaged_file("matplotlib", "mpl-data", "sample_data", "grace_hopper.jpg")
    pixels = read_photograph(photograph)

    try:
        device = detect_device().name
    except tvm_tile.DeviceAbsentError:
        device = "emulated"
        compiled = compile_for("nvidia/h200", model_file)
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder) / "detector.tvmtile"
            compiled.save(saved)
            print(f"saved with its machine code: {saved.stat().st_size / 1e6:.1f} MB")
        print("There is no GPU here: its kernels cannot run. The same schedules, emulated:")
    model = compile_for(device, model_file)

    print(f"\n== Running on {device}: {photograph.name}", flush=True)
    output = model(pixels)
    reference = onnxruntime.InferenceSession(model_file).run(None, {"images": pixels})[0]
    error = np.abs(output - reference).max() / np.abs(reference).max()
    print(f"tvm_tile sees     {describe_detection(output)}")
    print(f"ONNX Runtime sees {describe_detection(reference)}")
    print(f"largest difference, relative to the largest value: {error:.1e}")
    if device != "emulated":
        timing = model.time(pixels)
        print(f"one call: {timing.median_s * 1e3:.3f} ms (spread {timing.iqr_s * 1e3:.3f} ms)")

    print("\n== How it was compiled")
    print(model.explain())
    if not error <= TOLERANCE:
        print(f"\nFAILED: the difference is over {TOLERANCE:.0e}", file=sys.stderr)
        return 1
    print("\nOK: the same answer as ONNX Runtime")
    return 0


if __name__ == "__main__":
    sys.exit(main())
