"""Philox 4x32-10, a generator of random numbers that are computed of their places alone.

Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011). Of a counter
of four words of 32 bits and a key of two, ten rounds make four random words::

    round:  (c0, c1, c2, c3)  =>  (high(B c2) ^ c1 ^ k0, low(B c2), high(A c0) ^ c3 ^ k1, low(A c0))
            (k0, k1)          =>  (k0 + W, k1 + V)

A round takes two products of 32 bits by 32 whose 64 bits are both used, and nothing else that
overflows. That is 20 products and 60 cheaper operations for four words; Threefry, which has no
products, takes about 75 operations for two. A counter in place of a state that is handed on lets
each element of a tensor compute its own number, in whatever kernel needs it.
"""

from __future__ import annotations

from typing import Any

ROUNDS = 10
_FACTORS = 0xD2511F53, 0xCD9E8D57  # A and B, of the first word and the third
_STEPS = 0x9E3779B9, 0xBB67AE85  # W and V, of the words of the key

Steps = list[tuple[Any, Any]]
"""Variables and what each of them is, of those before it."""


def philox_steps(block: Any, stream: Any, seed: Any, calls: Any, word: Any) -> tuple[Steps, Any]:
    """How a random word is computed.

    Args:
        block: the counter's first word, an int32; or an int64, which TVM may make of it.
        stream: an int64, whose lower half is the counter's second word, and whose upper half
            changes the key's second word.
        seed: the key, an int64 or as many bits of any sign.
        calls: the counter's other words, an int64.
        word: which of the four words, an integer as ``block``.

    Returns:
        What is computed step by step, and the word as an expression of that: a uint32.
    """
    from tvm.tirx import EQ, LT, BitwiseXor, Cast, IntImm, Select, Var, const

    steps: Steps = []

    def let(name: str, value: Any) -> Any:
        var = Var(name, value.ty)
        steps.append((var, value))
        return var

    def halves(name: str, value: Any) -> tuple[Any, Any]:
        if isinstance(value, IntImm):  # which TVM would not cut to its lower half
            upper, lower = divmod(int(value) % 2**64, 2**32)
            return const(lower, "uint32"), const(upper, "uint32")
        whole = let(name, Cast("uint64", value))
        return Cast("uint32", whole), Cast("uint32", whole >> const(32, "uint64"))

    lower, upper = halves("stream", stream)
    words = [let("counter", Cast("uint32", block)), lower, *halves("calls", calls)]
    first, second = halves("seed", seed)
    key = let("key", first), let("key", BitwiseXor(second, upper))
    for number in range(ROUNDS):
        (low_a, high_a), (low_b, high_b) = (
            halves("product", Cast("uint64", words[at]) * const(factor, "uint64"))
            for at, factor in zip((0, 2), _FACTORS, strict=True)
        )
        own = (_raised(k, number * step) for k, step in zip(key, _STEPS, strict=True))
        mixed = zip((high_b, high_a), (words[1], words[3]), own, strict=True)
        c0, c2 = (let("mixed", BitwiseXor(BitwiseXor(h, c), k)) for h, c, k in mixed)
        words = [c0, low_b, c2, low_a]
    if isinstance(word, IntImm):
        return steps, words[int(word)]
    word = Cast("int32", word)
    pairs = [Select(EQ(word, const(at, "int32")), *words[at : at + 2]) for at in (0, 2)]
    return steps, Select(LT(word, const(2, "int32")), *pairs)


def _raised(word: Any, step: int) -> Any:
    """A word of the key, raised by a number modulo 2**32: in 64 bits, which do not overflow."""
    from tvm.tirx import Cast, const

    return Cast("uint32", Cast("uint64", word) + const(step % 2**32, "uint64"))
