"""Lesson 10: a model that remembers: a language model with its cache, token by token.

Run it with `python tutorials/10_state.py`. It needs no GPU and no download: the model is one of
transformers' own, made small, with random weights.
"""

from __future__ import annotations

import numpy as np
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

import tvm_tile

# 1. A decoder with a cache of fixed size, as transformers exports it. The module takes tokens and
#    their positions, and keeps keys and values of earlier tokens in buffers that it writes to.

SLOTS = 16
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=SLOTS,
)
model = LlamaForCausalLM(config).eval()
cache = {"batch_size": 1, "max_cache_len": SLOTS}
model.generation_config = GenerationConfig(
    use_cache=True, cache_implementation="static", cache_config=cache
)
decoder = TorchExportableModuleWithStaticCache(model, **cache).eval()

# 2. Compiled for a prompt of four tokens and for one token at a time: two entries that share
#    weights and state.


def exported(length: int) -> torch.export.ExportedProgram:
    tokens, positions = torch.arange(length)[None], torch.arange(length)
    with torch.no_grad():
        return torch.export.export(decoder, (), {"input_ids": tokens, "cache_position": positions})


entries = tvm_tile.compile({"prompt": exported(4), "step": exported(1)}, "emulated")
step = entries["step"]
weights = {id(constant): len(constant.data) for constant in step.program.constants}
print(f"{sum(weights.values()) / 1e3:.0f} kB of weights, one copy for both entries")
assert weights.keys() == {id(constant) for constant in entries["prompt"].program.constants}

# 3. What the model changes is its state. Keys and values are written in place: a step touches only
#    the row of its token. The count of tokens is read before it is written, so it is copied at the
#    end of each call.

print(step.explain())
assert "state, written in place: key_cache_0, value_cache_0" in step.explain("all")
assert set(step.state) == {"key_cache_0", "value_cache_0", "cumulative_length_0"}

# 4. Read a prompt, decode greedily. PyTorch, with a cache of its own, must give the same tokens.

tokens, positions = torch.tensor([[7, 3, 9, 4]]), torch.arange(4)
with torch.no_grad():
    while True:
        logits = entries["prompt" if len(positions) > 1 else "step"](tokens, positions)
        expected = decoder(input_ids=tokens, cache_position=positions)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
        if positions[-1] == SLOTS - 1:
            break
        tokens, positions = logits[:, -1].argmax(-1, keepdim=True), positions[-1:] + 1

# 5. The state is yours. Look at it (its tensors speak DLPack), write to it, or begin anew.

keys = step.state["key_cache_0"].numpy()
assert np.abs(keys).sum(axis=(0, 1, 3)).all(), "every slot is filled"
step.reset()
assert not step.state["key_cache_0"].numpy().any()
first = step(torch.tensor([[7]]), torch.tensor([0]))
step.state["key_cache_0"] = keys
assert torch.from_dlpack(step.state["key_cache_0"]).ne(0).all(-1).all()

# 6. Saved. `step.save("step.tvmtile")` keeps the state that the model began with, and with
#    `state=True` its present one, such as that behind a prompt which need not be read again.
