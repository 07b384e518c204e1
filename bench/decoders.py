"""Language models with a cache, step by step: ``python -m bench.decoders [NAME ...]``.

Each architecture of transformers is made small, with random weights, and exported twice with a
static cache: for a prompt of 16 tokens and for one token. Both are compiled, for the emulated
device if nothing else is said, the second one continues with the state of the first, and 48 greedy
steps are compared with PyTorch's, token for token and logit for logit. The table is written to
``bench/results/decoders.md``.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tvm_tile
from bench.__main__ import commit
from tvm_tile.errors import TileError
from tvm_tile.runtime import CompiledModel

PROMPT, CACHE = 16, 64
RESULTS = Path(__file__).parent / "results" / "decoders.md"
_SIZES = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "head_dim": 16,
}
_EXPERTS = {"num_experts_per_tok": 2}
# Names of transformers' configurations, and what is not as in _SIZES.
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaConfig", {}),
    "Mistral": ("MistralConfig", {"sliding_window": None}),
    "Qwen2": ("Qwen2Config", {}),
    "Qwen3": ("Qwen3Config", {}),
    "Gemma": ("GemmaConfig", {}),
    "Gemma 2": ("Gemma2Config", {"sliding_window": 32, "query_pre_attn_scalar": 16}),
    "Gemma 3": ("Gemma3TextConfig", {"sliding_window": 32, "query_pre_attn_scalar": 16}),
    "Phi-3": ("Phi3Config", {"pad_token_id": 0}),
    "OLMo 2": ("Olmo2Config", {"head_dim": None}),
    "GPT-2": ("GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "Qwen3-MoE": ("Qwen3MoeConfig", {**_EXPERTS, "num_experts": 4, "moe_intermediate_size": 64}),
    "GPT-OSS": ("GptOssConfig", {**_EXPERTS, "num_local_experts": 4, "sliding_window": 32}),
}


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one architecture.

    Attributes:
        name: of the architecture.
        status: ``"right"``, or what was refused or differs.
        error: the largest difference of a logit.
        in_place: tensors of the state that are written in place, and all.
        kernels: launches of a step.
        fallbacks: kernels that no rule of ours wrote.
    """

    name: str
    status: str
    error: float = 0.0
    in_place: tuple[int, int] = (0, 0)
    kernels: int = 0
    fallbacks: int = 0

    def render(self) -> str:
        """A row of the table."""
        written, all_of_it = self.in_place
        cells = (
            self.name,
            self.status,
            f"{self.error:.0e}",
            f"{written} of {all_of_it}",
            str(self.kernels),
            str(self.fallbacks),
        )
        return f"| {' | '.join(cells)} |"


def decoder(name: str) -> Any:
    """A small one with random weights and a static cache, as a module of tokens and positions."""
    import transformers
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    torch.manual_seed(0)
    kind, own = DECODERS[name]
    sizes = {key: value for key, value in {**_SIZES, **own}.items() if value is not None}
    if kind == "GPT2Config":
        sizes = {"vocab_size": 256, **own}
    if kind == "MistralConfig":
        sizes["sliding_window"] = None
    config = getattr(transformers, kind)(**sizes)
    extra = {"experts_implementation": "batched_mm"} if _EXPERTS.keys() <= own.keys() else {}
    model = transformers.AutoModelForCausalLM.from_config(config, **extra).eval()
    model.generation_config = transformers.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        cache_config={"batch_size": 1, "max_cache_len": CACHE},
    )
    return TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=CACHE).eval()


def compiled(module: Any, length: int, device: str) -> CompiledModel:
    """The module for so many tokens at once."""
    tokens, positions = torch.arange(3, 3 + length)[None], torch.arange(length)
    with torch.no_grad():
        example = {"input_ids": tokens, "cache_position": positions}
        program = torch.export.export(module, (), example)
    return tvm_tile.compile(program, device)


def steps(prefill: Any, step: Any, between: Any = lambda: None) -> Iterator[Any]:
    """The logits of each position from the prompt's last to the cache's end, decoded greedily."""
    prompt = torch.randint(3, 250, (1, PROMPT), generator=torch.Generator().manual_seed(1))
    logits = torch.as_tensor(prefill(prompt, torch.arange(PROMPT)))[:, -1]
    between()
    for position in range(PROMPT, CACHE):
        yield logits.clone()
        token = logits.argmax(-1, keepdim=True)
        logits = torch.as_tensor(step(token, torch.tensor([position])))[:, -1]
    yield logits.clone()


def row(name: str, device: str) -> Row:
    """Compile one architecture and compare it."""
    module = decoder(name)
    try:
        prefill, step = (compiled(module, length, device) for length in (PROMPT, 1))
    except TileError as error:
        return Row(name, f"refused: {error.current[:80]}")

    def hand_over() -> None:
        for kept in prefill.state:
            step.state[kept] = prefill.state[kept]

    ours = list(steps(prefill, step, hand_over))
    with torch.no_grad():

        def eager(tokens: Any, positions: Any) -> Any:
            return module(input_ids=tokens, cache_position=positions)

        theirs = list(steps(eager, eager))
    same = [int(a.argmax()) == int(b.argmax()) for a, b in zip(ours, theirs, strict=True)]
    error = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
    state = step.effects.state
    report = step.report
    return Row(
        name,
        "right" if all(same) and np.isfinite(error) else f"differs from step {same.index(False)}",
        error,
        (sum(kept.is_in_place for kept in state), len(state)),
        sum(kernel.calls * kernel.launches for kernel in report.kernels),
        len(report.fallbacks),
    )


def main() -> None:
    """Compare all architectures, or those that are named, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.decoders", description=__doc__)
    parser.add_argument("names", nargs="*", default=list(DECODERS))
    parser.add_argument("--device", default="emulated")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    lines = [
        "# Language models, step by step",
        "",
        f"Written by `python -m bench.decoders` at {commit()}, with transformers "
        f"{version('transformers')} and torch {version('torch')}: {PROMPT} tokens of prompt, then "
        f"greedy steps up to a cache of {CACHE}, two layers, random weights, {arguments.device}. "
        "*In place*: tensors of the state of which a step writes only the new rows.",
        "",
        "| architecture | tokens | largest error | in place | launches a step | fell back |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name in arguments.names:
        lines.append(row(name, arguments.device).render())
        print(lines[-1], flush=True)
    if arguments.names == list(DECODERS):
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
