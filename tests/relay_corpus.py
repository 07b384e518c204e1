"""Programs that Relay saved, with what they compute: see tests/relay_corpus/README.md."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tvm_tile.frontend.relay.arrays import read_params

FOLDER = Path(__file__).parent / "relay_corpus"
REFUSED = FOLDER / "refuse"


@dataclass(frozen=True)
class Case:
    """One program.

    Attributes:
        name: such as ``ops/conv1d``.
        inputs: names of ``main``'s parameters that the weights have no values for, in order; one
            may occur twice.
        outputs: how many, tuples flattened.
        tolerance: ``fp32``, ``fp16``, ``exact``, ``fast`` or ``quantised STEP``.
        expect: ``ok`` or ``may be refused``.
        seeded: whether the weights are left out.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: int
    tolerance: str
    expect: str
    seeded: bool

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def text_path(self) -> Path:
        return self.folder / "model.relay"

    @property
    def json_path(self) -> Path:
        return self.folder / "model.json"

    @cached_property
    def text(self) -> str:
        return self.text_path.read_text(encoding="utf-8")

    @cached_property
    def json(self) -> bytes:
        return self.json_path.read_bytes()

    @cached_property
    def params(self) -> dict[str, np.ndarray]:
        path = self.folder / "params.bin"
        return read_params(path.read_bytes(), str(path)) if path.is_file() else {}

    def input_arrays(self) -> list[np.ndarray]:
        """One for each name of ``inputs``."""
        with np.load(self.folder / "io.npz") as file:
            return [file[f"in.{name}"] for name in self.inputs]

    def output_arrays(self) -> list[np.ndarray]:
        """What TVM's own executor computed of the program in memory, which a text rounds."""
        with np.load(self.folder / "io.npz") as file:
            return [file[f"out.{index}"] for index in range(self.outputs)]


def _case(path: Path) -> Case:
    content = json.loads(path.read_text(encoding="utf-8"))
    return Case(
        name=content["name"],
        inputs=tuple(content["inputs"]),
        outputs=content["outputs"],
        tolerance=content["tolerance"],
        expect=content["expect"],
        seeded=content["seeded"],
    )


CASES = {case.name: case for case in map(_case, sorted(FOLDER.glob("*/*/case.json")))}
"""All of them by name."""
