"""Models of linear layers of codes whose products of one value are one, beside float64 PyTorch."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax

import tvm_tile
from tvm_tile import Open, Options, find_device
from tvm_tile.frontend import import_model
from tvm_tile.passes import ChooseCodes, JoinProducts
from tvm_tile.report.coded_weights import CodedWeight
from tvm_tile.tile.weld.side_by_side import Cost

pytestmark = pytest.mark.bank(6)

OPTIONS = Options(cache=False, low_bit=True)


class Block(nn.Module):
    """Queries, keys and values, then a gate and what it lets through."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        sizes = (width, width // 4, width // 4)
        self.q, self.k, self.v = (nn.Linear(width, own, bias=own == width) for own in sizes)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.q(x).unflatten(-1, (4, -1))
        scores = (q * self.k(x)[:, None]).sum(-1, keepdim=True)
        x = x + (scores.softmax(1) * self.v(x)[:, None]).flatten(1)
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def fewest(mod: tvm.IRModule) -> Cost:
    """As if each product took a second and all else nothing."""
    made = relax.analysis.get_var2val(mod["main"]).values()
    matmul = tvm.ir.Op.get("relax.matmul")
    found = sum(isinstance(value, relax.Call) and value.op == matmul for value in made)
    return Cost(float(found), 0)


def joined(mod: tvm.IRModule) -> tvm.IRModule:
    passes = [relax.transform.ConvertToDataflow(), JoinProducts(fewest)]
    last = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential([*passes, *last])(mod)


@pytest.mark.parametrize(
    ("codes", "symmetric"),
    [("int2", True), ("int4", True), ("int4", False), ("int8", False), ("nf4", True)],
)
def test_products_are_one_and_right(codes: str, symmetric: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    width = 128
    model = tvm_tile.quantize(Block(width, 192).eval(), codes, group=32, symmetric=symmetric)
    x = torch.randn(3, width)
    weights: list[CodedWeight] = []
    keep = ChooseCodes(find_device("emulated"), True, fewest, weights.append)
    mod = keep(import_model(model, example_inputs=(x,)).mod)
    compiled = tvm_tile.compile(joined(mod), "emulated", options=OPTIONS)
    found = np.asarray(compiled(x.numpy()))
    with torch.no_grad():
        wanted = model.double()(x.double()).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-4)
    decoding = [kernel for kernel in compiled.report.kernels if "decode" in kernel.name]
    assert len(decoding) == 3  # of all six layers
    compiled.save(tmp_path / "model")
    loaded = tvm_tile.load(tmp_path / "model")
    np.testing.assert_array_equal(np.asarray(loaded(x.numpy())), found)
    kept = sum(len(constant.data) for constant in loaded.program.constants)
    assert kept <= sum(weight.bytes for weight in weights) + 4 * width * 2


def kernels(model: nn.Module, rows: int) -> tuple[Counter[str], str]:
    """How often a run launches kernels of each rule, and what is said of them."""
    example = torch.zeros(rows, 1024, dtype=torch.float16)
    compiled = tvm_tile.compile(model, "nvidia/h200", example_inputs=(example,), options=OPTIONS)
    assert not compiled.report.fallbacks
    rules = [kernel.rule for kernel in compiled.report.kernels for _ in range(kernel.calls)]
    return Counter(rules), compiled.explain("all")


def has_gate_in_product(said: str) -> bool:
    """Whether a product of codes computes SwiGLU."""
    return any("sigmoid" in line and ": coded, " in line for line in said.splitlines())


def test_gpus_multiply_codes_side_by_side() -> None:
    torch.manual_seed(0)
    model = tvm_tile.quantize(Block(1024, 3072).half().eval(), "int4")
    found, said = kernels(model, 1)
    assert found["coded"] == 3
    assert "matmul_1024 + matmul_256 + matmul_256: side by side" in said
    assert has_gate_in_product(said)


def test_of_many_rows_a_gate_is_apart_from_its_product() -> None:
    model = tvm_tile.quantize(Block(1024, 3072).half().eval(), "int4")
    found, said = kernels(model, 64)
    assert found["coded_warpgroup"] >= 3
    assert not has_gate_in_product(said)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("rows", [1, 3, 9, 32])
def test_swiglu_of_codes_is_right_on_the_gpu(rows: int) -> None:
    torch.manual_seed(rows)
    model = tvm_tile.quantize(Block(1024, 3072).half().eval(), "int4")
    x = torch.randn(rows, 1024, dtype=torch.float16)
    compiled = tvm_tile.compile(model, example_inputs=(x,), options=OPTIONS)
    with torch.no_grad():
        wanted = copy.deepcopy(model).double()(x.double()).numpy()
    for _ in range(3):
        found = compiled(x.cuda()).double().cpu().numpy()
        error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
        assert error < 2e-3, error


def test_other_codes_are_left_apart_and_multiplied() -> None:
    """The gate and what it lets through would be one kernel, of weights that are decoded first."""
    torch.manual_seed(0)
    model = Block(1024, 3072).half().eval()
    mixed = tvm_tile.quantize(model, "int4")
    mixed.up = tvm_tile.quantize(model.up, "int8")
    found, said = kernels(mixed, 1)
    assert found["coded"] == 4
    assert "matmul_3072 + matmul_3072: their weights are not kept in one format" in said


@pytest.mark.whole
def test_few_open_rows_have_their_gate_in_the_product() -> None:
    model = tvm_tile.quantize(Block(1024, 3072).half().eval(), "int4")
    rows = torch.export.Dim("rows", min=1, max=8)
    example = (torch.zeros(5, 1024, dtype=torch.float16),)
    program = torch.export.export(model, example, dynamic_shapes=({0: rows},))
    inputs = {"x": (Open(1, 8), 1024)}
    compiled = tvm_tile.compile(program, "nvidia/h200", inputs=inputs, options=OPTIONS)
    assert has_gate_in_product(compiled.explain("joined"))


@pytest.mark.whole
def test_rows_are_open() -> None:
    torch.manual_seed(0)
    model = tvm_tile.quantize(Block(128, 192).eval(), "int4", group=32)
    rows = torch.export.Dim("rows", min=1, max=40)
    program = torch.export.export(model, (torch.randn(5, 128),), dynamic_shapes=({0: rows},))
    compiled = tvm_tile.compile(
        program, "emulated", inputs={"x": (Open(1, 40), 128)}, options=OPTIONS
    )
    wide = copy.deepcopy(model).double()
    for count in (1, 17, 40):
        x = torch.randn(count, 128)
        with torch.no_grad():
            wanted = wide(x.double()).numpy()
        np.testing.assert_allclose(np.asarray(compiled(x.numpy())), wanted, atol=1e-5, rtol=1e-4)
