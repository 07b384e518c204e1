"""The code of the documentation's pages runs as it is printed, on small models.

A page's blocks run one after the other, and share their names. Of commands each word is known to
the parser; what installs packages or makes keys is not run. `tests/pages.py` says how a page tells
what is done with a block instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import io
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from pages import (
    LESSONS,
    PAGES,
    ROOT,
    Block,
    blocks,
    printed_by,
    save_models,
    without_clock,
    without_numbers,
)
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

import tvm_tile
from tvm_tile.cli.parser import _COMMANDS, build_parser
from tvm_tile.cli.status import ExitStatus
from tvm_tile.device.detect import read_gpu
from tvm_tile.errors import DeviceAbsentError
from tvm_tile.passes.scheduling.plan_function import DLIGHT, LAST
from tvm_tile.tile.rules import ORDER

COMMANDS = {module.__name__.rpartition(".")[2] for module in _COMMANDS}


@functools.cache
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


def run(block: Block, names: dict[str, Any]) -> str:
    """What a block prints; nothing where it is not run."""
    has_gpu = read_gpu() is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if block.mark.startswith("not run: "):
            pass
        elif block.mark == "without a GPU: emulated" and not has_gpu:
            exec(re.sub(r"nvidia/\w+", "emulated", block.code), names)
        elif block.mark == "without a GPU: DeviceAbsentError" and not has_gpu:
            with pytest.raises(DeviceAbsentError):
                exec(block.code, names)
        else:
            exec(block.code, names)
    return printed.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_models(tmp_path)
    mod = legalized()
    functions = (f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc))
    image = np.ones((1, 3, 320, 320), "float32")
    np.save("photo.npy", image)
    names: dict[str, Any] = {"image": image, "mod": mod, "prim_func": next(functions)}
    printed = ""
    for block in blocks(page):
        if block.language == "python":
            printed = run(block, names)
        elif block.mark == "printed":
            assert without_numbers(without_clock(printed)) == without_numbers(block.code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_says_what_it_is(page: Path) -> None:
    known = {"python", "sh", "text", "{toctree}", "{include}", "{eval-rst}"}
    assert {block.language.split(" ")[0] for block in blocks(page)} <= known
    for block in blocks(page):
        lesson = re.fullmatch(r"printed by lesson (\d+)", block.mark)
        kinds = ("", "printed", "without a GPU: emulated", "without a GPU: DeviceAbsentError")
        assert lesson or block.mark in kinds or block.mark.startswith("not run: ")
        if lesson:
            (path,) = (path for path in LESSONS if path.stem.startswith(lesson[1]))
            printed = printed_by(path).read_text(encoding="utf-8")
            assert without_numbers(block.code) in without_numbers(printed)


def test_every_command_is_one() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for block in blocks(page):
            for line in block.code.splitlines() if block.language == "sh" else ():
                program, *words = shlex.split(line, comments=True) or ["#"]
                if program == "tvm-tile":
                    build_parser().parse_args(words)
                elif program == "make":
                    assert f"\n{words[0]}:" in makefile
                else:
                    assert program in {"#", "python", "pip", "openssl", "sudo", "docker"}, line
        for module in re.findall(r"python -m ([\w.]+)", page.read_text(encoding="utf-8")):
            assert importlib.util.find_spec(module), module


def test_a_visitor_has_two_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 165


def test_what_pages_name_is_there() -> None:
    options = {field.name for field in dataclasses.fields(tvm_tile.Options)}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"tvm_tile-(.*?)-py3", text)) <= {tvm_tile.__version__}, page
        for error in re.findall(r"`(?:tvm_tile\.)?(\w+Error)[`:]", text):
            assert hasattr(tvm_tile, error), (page, error)
        assert set(re.findall(r"\bOptions\((\w+)=", text)) <= options, page
        assert set(re.findall(r"`tvm-tile (\w+)", text)) <= COMMANDS, page


def test_every_command_rule_and_exit_status_is_told() -> None:
    told = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^tvm-tile (\w+)", told, re.MULTILINE)) == COMMANDS
    statuses = told[told.index("| Exit status |") :]
    assert {int(number) for number in re.findall(r"\d+", first_column(statuses))} == set(ExitStatus)
    report = (ROOT / "docs" / "read_report.md").read_text(encoding="utf-8")
    rules = report[report.index("### The rules") : report.index("## As data")]
    names = {rule.name for rule in ORDER} | {DLIGHT, *LAST}
    assert set(re.findall(r"`(\w+)`", first_column(rules))) == names


@pytest.mark.parametrize(
    ("result", "row", "told"),
    [
        ("onnx_nodes", "tvm_tile, emulated", "| {0} | {1} | {2} | {3} in half precision"),
        ("torch_operators", "tvm_tile, emulated", "| {1}, and {2} in part | {3} | {4} |"),
        ("architectures", "emulated", "[{0} architectures](../bench/results/architectures.md)"),
        ("architectures", "emulated", "| {1} | {3} | {4} |"),
        ("corpus", "nvidia/h200", "[{0} trained ONNX files](../bench/results/corpus.md)"),
        ("corpus", "nvidia/h200", "| {1} | {3} | {4} | of the right ones {6} with nothing said"),
        ("backend_models", "144", "| all {0} that have run |"),
    ],
)
def test_what_is_proven_is_what_was_found(result: str, row: str, told: str) -> None:
    found = (ROOT / "bench" / "results" / f"{result}.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\| {re.escape(row)} \| (\d.*) \|$", found, re.MULTILINE)
    numbers = [f"{int(cell):,}" if cell.isdigit() else cell for cell in line.split(" | ")]
    page = (ROOT / "docs" / "what_works.md").read_text(encoding="utf-8")
    assert told.format(*numbers) in page


def first_column(text: str) -> str:
    """Of the lines of tables."""
    return "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("|"))


def test_every_public_name_is_in_the_reference() -> None:
    (reference,) = (page for page in PAGES if page.stem == "api")
    text = reference.read_text(encoding="utf-8")
    name = r"^\.\. auto(?!module)\w+:: tvm_tile\.(?:[\w.]+\.)?(\w+)$"
    told = re.findall(name, text, re.MULTILINE)
    assert sorted(told) == sorted(set(tvm_tile.__all__) - {"__version__"})
