"""The suite of decode steps, tiny: the same kinds of models, two layers each."""

from __future__ import annotations

from typing import Any

from bench.suites import decode
from bench.workload import Case, Workload

SOURCE = "the tests"
_SIZES = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
_GPT2 = {"vocab_size": 256, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}
_WHISPER = {
    "vocab_size": 256,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_source_positions": 24,
    "max_target_positions": 128,
    "pad_token_id": 0,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {**_SIZES, "head_dim": 16}),
    "qwen3": ("Qwen3Config", {**_SIZES, "head_dim": 32}),
    "gpt2": ("GPT2Config", _GPT2),
    "whisper": ("WhisperConfig", _WHISPER),
    "granite": (
        "GraniteMoeConfig",
        {**_SIZES, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
}


def workloads() -> tuple[Workload, ...]:
    """Each kind with twenty tokens in its cache."""
    return tuple(
        Workload("tests.tiny_decoders", f"{name}@20", name, "float32", batch, (("context", 20),))
        for name in MODELS
        for batch in (1, 2)
    )


def case(workload: Workload) -> Case:
    """As the suite makes it."""
    return decode.step_case(workload, *MODELS[workload.family])
