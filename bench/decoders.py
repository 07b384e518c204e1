"""Language models with a cache, step by step: ``python -m bench.decoders [NAME ...]``.

Each architecture of transformers is made small, with random weights, and exported twice with a
static cache: for a prompt of 16 tokens and for one token. Both are compiled, for the emulated
device if nothing else is said, the second one continues with the state of the first, and 48 greedy
steps are compared with PyTorch's, token for token and logit for logit. Decoders behind an encoder
are compared from their first token. The table is written to ``bench/results/decoders.md``.
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
_PLAIN = {name: size for name, size in _SIZES.items() if name != "head_dim"}
_FEW = {"num_experts_per_tok": 2}
_EXPERTS = {**_SIZES, **_FEW}
_GPT = {"vocab_size": 256, "n_embd": 64, "n_layer": 2, "n_head": 4}
_FALCON = {
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
_DEEPSEEK = {
    **{**_PLAIN, "num_key_value_heads": 4, "num_hidden_layers": 2},
    **{"q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16},
    **{"v_head_dim": 16, "first_k_dense_replace": 1, "moe_intermediate_size": 32},
    **{"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2},
}
_LLAMA_4 = {"num_local_experts": 4, "intermediate_size_mlp": 128, "num_experts_per_tok": 1}
# Names of transformers' configurations, and their sizes.
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaConfig", _SIZES),
    "Mistral": ("MistralConfig", {**_SIZES, "sliding_window": None}),
    "Qwen2": ("Qwen2Config", _SIZES),
    "Qwen3": ("Qwen3Config", _SIZES),
    "Gemma": ("GemmaConfig", _SIZES),
    "Gemma 2": ("Gemma2Config", {**_SIZES, "sliding_window": 32, "query_pre_attn_scalar": 16}),
    "Gemma 3": ("Gemma3TextConfig", {**_SIZES, "sliding_window": 32, "query_pre_attn_scalar": 16}),
    "Phi-3": ("Phi3Config", {**_SIZES, "pad_token_id": 0}),
    "OLMo 2": ("Olmo2Config", _PLAIN),
    "GPT-2": ("GPT2Config", {**_GPT, "n_positions": 128}),
    "Phi": ("PhiConfig", _PLAIN),
    "GLM": ("GlmConfig", {**_SIZES, "pad_token_id": 0}),
    "GLM-4": ("Glm4Config", {**_SIZES, "pad_token_id": 0}),
    "SmolLM3": ("SmolLM3Config", {**_PLAIN, "pad_token_id": 0}),
    "StarCoder2": ("Starcoder2Config", _PLAIN),
    "Granite": ("GraniteConfig", _PLAIN),
    "Cohere": ("CohereConfig", {**_PLAIN, "pad_token_id": 0}),
    "Cohere 2": ("Cohere2Config", {**_SIZES, "pad_token_id": 0, "sliding_window": 32}),
    "OLMo 3": ("Olmo3Config", {**_PLAIN, "sliding_window": 32}),
    "EXAONE 4": ("Exaone4Config", {**_SIZES, "sliding_window": 32}),
    "Nemotron": ("NemotronConfig", _SIZES),
    "Ministral": ("MinistralConfig", {**_SIZES, "sliding_window": 32}),
    "StableLM": ("StableLmConfig", _PLAIN),
    "Helium": ("HeliumConfig", _SIZES),
    "ERNIE 4.5": ("Ernie4_5Config", {**_SIZES, "pad_token_id": 0}),
    "Hunyuan": ("HunYuanDenseV1Config", {**_SIZES, "pad_token_id": 0}),
    "Seed-OSS": ("SeedOssConfig", _SIZES),
    "Apertus": ("ApertusConfig", {**_PLAIN, "pad_token_id": 0}),
    "Arcee": ("ArceeConfig", _SIZES),
    "GPT-NeoX": ("GPTNeoXConfig", {n: own for n, own in _PLAIN.items() if "key" not in n}),
    "GPT-J": ("GPTJConfig", {**_GPT, "n_positions": 128, "rotary_dim": 8}),
    "Falcon": ("FalconConfig", {**_FALCON, "num_kv_heads": 2, "new_decoder_architecture": True}),
    "MPT": ("MptConfig", {"vocab_size": 256, "d_model": 64, "n_layers": 2, "n_heads": 4}),
    "BLOOM": ("BloomConfig", {"vocab_size": 256, "hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "Mixtral": ("MixtralConfig", {**_EXPERTS, "num_local_experts": 4, "sliding_window": None}),
    "Granite-MoE": ("GraniteMoeConfig", {**_PLAIN, **_FEW, "num_local_experts": 4}),
    "Qwen3-MoE": ("Qwen3MoeConfig", {**_EXPERTS, "num_experts": 4, "moe_intermediate_size": 64}),
    "GPT-OSS": ("GptOssConfig", {**_EXPERTS, "num_local_experts": 4, "sliding_window": 32}),
    "OLMoE": ("OlmoeConfig", {**_PLAIN, **_FEW, "num_experts": 4}),
    "DeepSeek-V3": ("DeepseekV3Config", _DEEPSEEK),
    "Llama 4": ("Llama4TextConfig", {**_EXPERTS, **_LLAMA_4}),
}


# Those that read an encoder's states besides: names of configurations and models, and sizes.
ENCODED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "T5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4},
    ),
    "Whisper": (
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        {
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 128,
            "decoder_ffn_dim": 128,
            "max_target_positions": 128,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
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


def decoder(name: str, experts: str | None = None) -> Any:
    """A small one with random weights and a static cache, as a module of tokens and positions.

    Args:
        name: of the architecture.
        experts: how transformers is to multiply by experts' matrices; ``None`` for its default.
    """
    import transformers
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    torch.manual_seed(0)
    kind, sizes = DECODERS[name]
    config = getattr(transformers, kind)(**sizes)
    has_experts = "num_experts_per_tok" in sizes
    extra = {"experts_implementation": experts} if experts and has_experts else {}
    model = transformers.AutoModelForCausalLM.from_config(config, **extra).eval()
    model.generation_config = transformers.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        cache_config={"batch_size": 1, "max_cache_len": CACHE},
    )
    return TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=CACHE).eval()


def exported(module: Any, length: int) -> Any:
    """The module for so many tokens at once."""
    tokens, positions = torch.arange(3, 3 + length)[None], torch.arange(length)
    with torch.no_grad():
        example = {"input_ids": tokens, "cache_position": positions}
        return torch.export.export(module, (), example)


def steps(prefill: Any, step: Any) -> Iterator[Any]:
    """The logits of each position from the prompt's last to the cache's end, decoded greedily."""
    prompt = torch.randint(3, 250, (1, PROMPT), generator=torch.Generator().manual_seed(1))
    logits = torch.as_tensor(prefill(prompt, torch.arange(PROMPT)))[:, -1]
    for position in range(PROMPT, CACHE):
        yield logits.clone()
        token = logits.argmax(-1, keepdim=True)
        logits = torch.as_tensor(step(token, torch.tensor([position])))[:, -1]
    yield logits.clone()


def encoded_decoder(name: str) -> Any:
    """A small one with random weights, as a module of a token, the encoder's states, a position."""
    import transformers
    from transformers.integrations import executorch

    torch.manual_seed(0)
    config, kind, sizes = ENCODED[name]
    own = getattr(transformers, config)(vocab_size=256, decoder_start_token_id=0, **sizes)
    model = getattr(transformers, kind)(own).eval()
    model.generation_config.update(
        use_cache=True,
        cache_implementation="static",
        cache_config={"batch_size": 1, "max_cache_len": CACHE},
    )
    if not hasattr(model, "lm_head"):  # by which the module below knows it
        model.lm_head = model.proj_out
    return executorch.Seq2SeqLMDecoderExportableModuleWithStaticCache(
        model=model, max_static_cache_length=CACHE, batch_size=1
    ).eval()


def row(name: str, device: str) -> Row:
    """Compile one architecture and compare it."""
    try:
        return encoded_row(name, device) if name in ENCODED else decoder_row(name, device)
    except TileError as error:
        return Row(name, f"refused: {error.current[:80]}")


def decoder_row(name: str, device: str) -> Row:
    """Compare a decoder, which reads a prompt and goes on from there."""
    module = decoder(name)
    programs = {"prefill": exported(module, PROMPT), "step": exported(module, 1)}
    entries = tvm_tile.compile(programs, device)
    ours = list(steps(entries["prefill"], entries["step"]))

    def eager(tokens: Any, positions: Any) -> Any:
        return module(input_ids=tokens, cache_position=positions)

    with torch.no_grad():
        theirs = list(steps(eager, eager))
    return compared(name, ours, theirs, entries["step"])


def encoded_row(name: str, device: str) -> Row:
    """Compare a decoder behind an encoder, from its first token."""
    states = torch.randn(1, 12, 64, generator=torch.Generator().manual_seed(2))
    start, first = torch.tensor([[3]]), torch.tensor([0])
    with torch.no_grad():
        program = torch.export.export(encoded_decoder(name), (start, states, first))
    step = tvm_tile.compile(program, device)
    eager = encoded_decoder(name)  # anew: an export leaves traces of itself in the other

    def all_steps(run: Any) -> Iterator[Any]:
        token = start
        for position in range(CACHE):
            logits = torch.as_tensor(run(token, states, torch.tensor([position])))[:, -1]
            yield logits.clone()
            token = logits.argmax(-1, keepdim=True)

    with torch.no_grad():
        return compared(name, list(all_steps(step)), list(all_steps(eager)), step)


def compared(name: str, ours: list[Any], theirs: list[Any], step: CompiledModel) -> Row:
    """The row of an architecture whose logits are these."""
    same = [int(a.argmax()) == int(b.argmax()) for a, b in zip(ours, theirs, strict=True)]
    error = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
    state = step.effects.state
    report = step.report
    return Row(
        name,
        "right" if all(same) and np.isfinite(error) else f"differs from step {same.index(False)}",
        error,
        (sum(kept.is_in_place for kept in state), len(state)),
        report.launch_count,
        len(report.fallbacks),
    )


def main() -> None:
    """Compare all architectures, or those that are named, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.decoders", description=__doc__)
    parser.add_argument("names", nargs="*", default=[*DECODERS, *ENCODED])
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
    if arguments.names == [*DECODERS, *ENCODED]:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
