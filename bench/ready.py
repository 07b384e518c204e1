"""From weights on disk to a language model's first token: ``python -m bench.ready``.

A published model's shape with random weights of bfloat16 is written once to ``--folder`` as
transformers keeps models, in files of a few GB (safetensors). Another process then reads it with
transformers, compiles a step of one token with a filled cache of 1,024, and runs it where there is
such a GPU; without one it ends when it is compiled for ``--device``. No compiled model is cached.
Written to ``bench/results/ready.md``: seconds of each stage, and the most memory of the host that
belongs to the process and no file, over that of the weights.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from bench.__main__ import commit
from bench.suites.decode import published

RESULTS = Path(__file__).parent / "results" / "ready.md"
_CONTEXT, _ROOM = 1024, 64
_FILE_BYTES = 2 << 30
_SECONDS_BETWEEN_LOOKS = 0.05


def write_weights(name: str, folder: Path) -> None:
    """A checkpoint of a model of the published facts, whose matrices are drawn, norms ones."""
    import transformers
    from safetensors.torch import save_file

    model = published(name)
    config = getattr(transformers, model["kind"])(**model["sizes"], dtype="bfloat16")
    with torch.device("meta"):
        made: Any = transformers.AutoModelForCausalLM
        shapes = made.from_config(config).state_dict()
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, str] = {}
    for number, keys in enumerate(_files(shapes)):
        own = f"model-{number:05}.safetensors"
        save_file({key: _drawn(shapes[key].shape) for key in keys}, folder / own)
        names |= dict.fromkeys(keys, own)
    index = {"metadata": {}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config.save_pretrained(folder)


def _files(shapes: Mapping[str, torch.Tensor]) -> Iterator[list[str]]:
    """Names of tensors, file by file."""
    held: list[str] = []
    for key in shapes:
        held.append(key)
        if sum(2 * shapes[own].numel() for own in held) > _FILE_BYTES:
            yield held
            held = []
    if held:
        yield held


def _drawn(shape: torch.Size) -> torch.Tensor:
    made = torch.empty(shape, dtype=torch.bfloat16)
    return made.fill_(1) if len(shape) == 1 else made.normal_(0, 0.02)


class _Watch:
    """Seconds of stages, and the most memory of this process's own so far."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self.most = 0
        self._last = time.perf_counter()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            status = Path("/proc/self/status").read_text()
            kilobytes = int(status.partition("RssAnon:")[2].split()[0])
            self.most = max(self.most, kilobytes * 1024)
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.stages[stage], self._last = now - self._last, now


def first_token(folder: Path, device: str) -> dict[str, Any]:
    """Read, compile and run; seconds by stage, and bytes."""
    watch = _Watch()
    import transformers

    import tvm_tile
    from bench.suites.networks.decode_step import DecodeStep

    watch.lap("import of libraries")
    kind: Any = transformers.AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.bfloat16).eval().requires_grad_(False)
    step = DecodeStep(model, 1, _CONTEXT + _ROOM)
    watch.lap("transformers reads")
    example = torch.zeros(1, 1, dtype=torch.int64), torch.tensor([_CONTEXT])
    options = tvm_tile.Options(cache=False)
    compiled = tvm_tile.compile(step, device, example_inputs=example, options=options)
    watch.lap("compile")
    if torch.cuda.is_available():
        compiled(*(value.cuda() for value in example))
        torch.cuda.synchronize()
        watch.lap("first token")
    weights = sum(parameter.nbytes for parameter in model.parameters())
    return {"stages": watch.stages, "most": watch.most, "weights": weights}


def main() -> None:
    """Write the weights if they are not there, measure in a process of its own, write the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.ready", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", default="llama-3-8b")
    parser.add_argument("--device", default="nvidia/h200")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(first_token(arguments.folder, arguments.device)))
        return
    if not (arguments.folder / "config.json").exists():
        write_weights(arguments.model, arguments.folder)
    command = [sys.executable, "-m", "bench.ready", *sys.argv[1:], "--child"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    stages, versions = (
        told["stages"],
        [f"{own} {version(own)}" for own in ("torch", "transformers")],
    )
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    lines = [
        "# From weights on disk to the first token",
        "",
        f"Written by `python -m bench.ready --model {arguments.model}` at {commit()}, for "
        f"{arguments.device}, on {os.cpu_count()} cores, {gpu}, {', '.join(versions)}.",
        "",
        f"| {' | '.join(('model', *stages, 'all', 'host memory', 'over the weights'))} |",
        f"| --- {'| ---: ' * (len(stages) + 3)}|",
        f"| {arguments.model} | {' | '.join(f'{own:.1f} s' for own in stages.values())} "
        f"| {sum(stages.values()):.1f} s | {told['most'] / 1e9:.1f} GB "
        f"| {told['most'] / told['weights']:.2f} |",
    ]
    RESULTS.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
