"""Lesson 11: a model of transformers in three lines, and what may become of its weights.

Run it with `python tutorials/11_transformer.py`. It needs no GPU and no download: the model is a
BERT made small, with random weights. On a GPU leave `"device"` out.
"""

from __future__ import annotations

import logging
import sys

import torch
from transformers import BertConfig, BertModel

import tvm_tile

logging.basicConfig(stream=sys.stdout)  # the backend says by its logger what happens
torch.manual_seed(0)
config = BertConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=16,
)
tokens = torch.randint(0, 64, (1, 12))

# 1. The three lines.

model = BertModel(config).eval()
fast = torch.compile(model, backend="tvm_tile", options={"device": "emulated"})
with torch.no_grad():
    hidden = fast(tokens).last_hidden_state

with torch.no_grad():
    torch.testing.assert_close(hidden, model(tokens).last_hidden_state, rtol=1e-4, atol=1e-5)

# 2. Weights are inputs of the compiled program, read where they are: whatever changes them, an
#    optimizer, `load_state_dict` or a merged adapter, is seen by the next call.

with torch.no_grad():
    model.encoder.layer[0].attention.self.value.weight.data *= 20
    changed = fast(tokens).last_hidden_state
    torch.testing.assert_close(changed, model(tokens).last_hidden_state, rtol=1e-4, atol=1e-5)
assert not torch.allclose(changed, hidden)

# 3. If you only infer, say so: weights are then compiled in, and what can be computed of them is
#    computed once. Queries, keys and values become one product.

torch._dynamo.reset()
options = {"device": "emulated", "freeze": True}
frozen = torch.compile(model, backend="tvm_tile", options=options)
with torch.no_grad():
    torch.testing.assert_close(frozen(tokens).last_hidden_state, changed, rtol=1e-4, atol=1e-5)

# 4. PyTorch counts writes to a tensor. A call compares the counts; if one has changed, weights are
#    read at each call from then on. (Writes through `.data`, as above, are not counted: `freeze`
#    promises that there are none.)

with torch.no_grad():
    model.encoder.layer[0].attention.self.value.weight.mul_(0.1)
    again = frozen(tokens).last_hidden_state
    torch.testing.assert_close(again, model(tokens).last_hidden_state, rtol=1e-4, atol=1e-5)
assert not torch.allclose(again, changed)

# 5. What was compiled, what PyTorch runs, and why: for a graph, or for each kernel of it.

with torch.no_grad():
    report = tvm_tile.torch.explain(model, tokens, options={"device": "emulated"})
print(report)
(graph,) = report.graphs
assert not graph.eager
