"""Weights of PyTorch's that are kept without their zeros, in exported and in compiled modules."""

import pytest
import torch
from torch.sparse import SparseSemiStructuredTensorCUTLASS
from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass

import tvm_tile
from tvm_tile.errors import UnsupportedOperatorError

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of SparseSemi"),
]
LAYOUTS = {
    "coo": torch.Tensor.to_sparse_coo,
    "csr": torch.Tensor.to_sparse_csr,
    "csc": torch.Tensor.to_sparse_csc,
    "bsr": lambda weight: weight.to_sparse_bsr((8, 8)),
}
PRODUCTS = {
    "linear": lambda w, x: torch.nn.functional.linear(x, w),
    "matmul": lambda w, x: w @ x.t(),
    "sparse.mm": lambda w, x: torch.sparse.mm(w, x.t()),
    "sparse.addmm": lambda w, x: torch.sparse.addmm(torch.ones(24, 5), w, x.t(), beta=0.5),
    "turned": lambda w, x: torch.mm(w.to_dense().t(), x[:, :24].t()),
    "mv": lambda w, x: torch.mv(w, x[0]),
}


class Module(torch.nn.Module):
    """A function of a sparse parameter and an input."""

    def __init__(self, weight, function):
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.function = function

    def forward(self, x):
        """Apply the function."""
        return torch.relu(self.function(self.weight, x))


def _weight():
    torch.manual_seed(0)
    return torch.randn(24, 32) * (torch.rand(24, 32) < 0.3)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_sparse_weights_compute_what_pytorch_does(layout, product):
    module = Module(LAYOUTS[layout](_weight()), PRODUCTS[product])
    x = torch.randn(5, 32)
    program = torch.export.export(module, (x,))
    compiled = tvm_tile.compile(program, "emulated")
    torch.testing.assert_close(compiled(x), module(x))


def test_what_depends_on_weights_alone_is_pytorchs():
    def of_given_entries(weight, x):
        return torch.sparse.mm(torch.sparse.softmax(weight, 1), x.t())

    module = Module(_weight().to_sparse_coo(), of_given_entries)
    x = torch.randn(5, 32)
    compiled = tvm_tile.compile(torch.export.export(module, (x,)), "emulated")
    torch.testing.assert_close(compiled(x), module(x))


@pytest.mark.parametrize("function", ["product", "weight", "input"])
def test_other_sparse_tensors_are_refused_by_name(function):
    functions = {
        "product": (lambda w, x: (w * x[0]).to_dense(), "mul"),
        "weight": (lambda w, x: torch.sparse.sum(w * x[:1]), "mul"),
        "input": (lambda w, x: torch.sparse.mm(w.to_dense().to_sparse() * x[0], x.t()), "layout"),
    }
    call, named = functions[function]
    program = torch.export.export(Module(_weight().to_sparse_coo(), call), (torch.randn(5, 32),))
    with pytest.raises(UnsupportedOperatorError, match=named):
        tvm_tile.compile(program, "emulated")


def test_what_a_gpu_packed_for_its_sparse_instructions():
    weight = torch.randint(-8, 8, (64, 64)).float() * torch.tensor([0, 1]).repeat(32)
    packed, meta = sparse_semi_structured_from_dense_cutlass(weight)
    structured = SparseSemiStructuredTensorCUTLASS(weight.shape, packed, meta, None, None, None)
    module = torch.nn.Linear(64, 64)
    module.weight = torch.nn.Parameter(weight)
    x = torch.randn(8, 64)
    program = torch.export.export(module, (x,))
    expected = module(x)
    program.state_dict["weight"] = torch.nn.Parameter(structured, requires_grad=False)
    torch.testing.assert_close(tvm_tile.compile(program, "emulated")(x), expected)
    module.weight = torch.nn.Parameter(structured, requires_grad=False)
    compiled = tvm_tile.compile(module, "emulated", example_inputs=(x,))
    torch.testing.assert_close(compiled(x), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_torch_compile_leaves_sparse_weights_to_pytorch(layout):
    module = Module(LAYOUTS[layout](_weight()), PRODUCTS["linear"])
    x = torch.randn(5, 32)
    with torch.no_grad():
        for freeze in (False, True):
            torch._dynamo.reset()
            options = {"device": "emulated", "freeze": freeze}
            call = torch.compile(module, backend="tvm_tile", options=options)
            torch.testing.assert_close(call(x), module(x))
