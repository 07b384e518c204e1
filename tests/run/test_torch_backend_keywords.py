"""What transformers, diffusers and accelerate pass to `torch.compile` besides the backend."""

from __future__ import annotations

import copy
import functools
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_backend_cases import drawn
from torch_backend_runs import EMULATED

import tvm_tile
from tvm_tile.errors import OptionError
from tvm_tile.stages.forced import Forced
from tvm_tile.torch.options import BackendOptions

EMULATED_BACKEND = functools.partial(tvm_tile.torch.tvm_tile, options=EMULATED)
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")


@pytest.fixture(autouse=True)
def compiled_anew() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("mode", "captures", "measured"),
    [*zip(MODES, (True, True, True, False), (1, 1, 10, 10), strict=True)],
)
def test_a_mode_stands_for_options(mode: str, captures: bool, measured: int) -> None:
    options = BackendOptions.of({}, mode).options
    assert (options.cuda_graph, options.topk) == (captures, measured)
    assert BackendOptions.of({"topk": 3, "cuda_graph": False}, mode).options.topk == 3
    emulated = BackendOptions.of(EMULATED, mode).options
    assert (emulated.cuda_graph, emulated.topk) == (captures, 1)


@pytest.mark.parametrize("mode", ["max_autotune", "lite", 3])
def test_a_mode_that_is_none_is_refused(mode: Any) -> None:
    with pytest.raises(OptionError, match="modes are default, reduce-overhead, max-autotune, "):
        BackendOptions.of({}, mode)


class Block(nn.Module):
    """A block that a network repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))


@emulated
@torch.no_grad()
def test_options_are_given_as_a_whole_too() -> None:
    given = {"device": "emulated", "options": Forced(weld=False, topk=0), "cache": False}
    assert BackendOptions.of(given).options == Forced(weld=False, topk=0, cache=False)
    block, x = Block(), drawn(4, 6)
    fast = torch.compile(block, backend=tvm_tile.torch.tvm_tile, options=given)
    torch.testing.assert_close(fast(x), block(x))


@emulated
@torch.no_grad()
def test_blocks_are_compiled_by_themselves_in_any_mode(caplog: pytest.LogCaptureFixture) -> None:
    """As accelerate's `compile_regions` does, and diffusers' `compile_repeated_blocks` in place."""
    torch.manual_seed(0)
    blocks = [Block() for _ in MODES]
    x = drawn(4, 6)
    wanted = copy.deepcopy(nn.Sequential(*blocks)).double()(x.double()).float()
    how: dict[str, Any] = {"backend": EMULATED_BACKEND, "options": None, "disable": False}
    regions = [
        torch.compile(block, mode=mode, fullgraph=False, dynamic=None, **how)
        for mode, block in zip(MODES, blocks, strict=True)
    ]
    with caplog.at_level("INFO", "tvm_tile.torch"):
        torch.testing.assert_close(nn.Sequential(*regions)(x), wanted)
        blocks[0].compile(fullgraph=True, dynamic=False, mode="max-autotune-no-cudagraphs", **how)
        torch.testing.assert_close(nn.Sequential(*blocks)(x), wanted)
    assert caplog.text.count("2 of 2 operators compiled, in 1 part") == len(MODES) + 1


@emulated
def test_transformers_generates_with_its_own_keywords() -> None:
    from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
    }
    heads: dict[str, Any] = {
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 1,
    }
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes, **heads)).eval()
    config = CompileConfig(backend=EMULATED_BACKEND)
    vars(config)["_compile_all_devices"] = True  # for transformers' own tests
    assert config.mode == "reduce-overhead"
    given = torch.tensor([[3, 1, 4]])
    how: dict[str, Any] = {
        "max_new_tokens": 5,
        "do_sample": False,
        "cache_implementation": "static",
    }
    ends: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 31}
    found = model.generate(given, compile_config=config, **how, **ends)
    assert found.tolist() == model.generate(given, **how, **ends).tolist()
