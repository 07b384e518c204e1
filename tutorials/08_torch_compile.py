"""Lesson 8: one line in a PyTorch program, and what becomes of what cannot be compiled.

Run it with `python tutorials/08_torch_compile.py`. It needs no GPU: with `options={"device":
"emulated"}` the kernels that a GPU would get run on the CPU. On a GPU leave the option out: models
are then compiled for the GPU that their tensors are on.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tvm_tile

# 1. A model as people write them. It has a running state and, in its middle, an operator that
#    tvm_tile does not know: the inverse of a matrix.


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 4)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        q, k, v = self.qkv(x).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, 16)
        gram = x.transpose(1, 2) @ x + 10 * torch.eye(16)
        return torch.tanh(self.out(x @ torch.linalg.inv(gram)))


torch.manual_seed(0)
model = Model()
x = torch.randn(2, 5, 16)
emulated = {"device": "emulated"}

# 2. One line. PyTorch finds the backend by its name, without an import. It hands over graphs of
#    operators; their known parts are compiled, and PyTorch runs the rest.

fast = torch.compile(model, backend="tvm_tile", options=emulated)
with torch.no_grad():
    torch.testing.assert_close(fast(x), model(x))
assert model.calls == 2, "each call has counted, compiled or not"

# 3. Ask what was compiled, what was not, and why. (Only this needs the import.) The attention is
#    one of the operators of the first part; the inverse stays PyTorch's.

with torch.no_grad():
    explanation = tvm_tile.torch.explain(model, x, options=emulated)
print(explanation)
(graph,) = explanation.graphs
assert len(graph.parts) == 2
assert {one.operator for one in graph.eager} >= {"aten.linalg_inv_ex.default"}
print(graph.parts[0].model.explain())

# 4. Weights are shared, never copied into the program: what changes them is seen at the next call.

with torch.no_grad():
    model.out.bias.fill_(1.0)
    torch.testing.assert_close(fast(x), model(x))

# 5. Training is the same line. PyTorch derives the backward graph, and it is compiled like the
#    forward one.

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(5):
    loss = fast(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print("losses:", ", ".join(f"{loss:.4f}" for loss in losses))
assert losses == sorted(losses, reverse=True)
