"""What Python's errors say, in the words of the command line."""

from __future__ import annotations

import pytest

from tvm_tile.cli.spelling import in_words


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("inputs={'images': (1, 3, 320, 320)}", "--input images=1x3x320x320"),
        ("inputs={'x': (1, height)}, with", "--input 'x=1x<height>', with"),
        ("inputs={'a': (n,), 'b.c': (1, p2o.0)}", "--input 'a=<n>' --input 'b.c=1x<p2o.0>'"),
        ("inputs={'x': (Open(1, 8, name='n'), 3)}", "--input 'x=[n=1:8]x3'"),
        ("inputs={'x': (...)}", "--input x=..."),
        ("inputs= may name the model's inputs", "--input may name the model's inputs"),
        ("or ranges such as Open(32, 512, step=32)", "or ranges such as [32:512:32]"),
        ("compile with Options(topk=1), which", "compile with --topk 1, which"),
        ("Options(tf32=True)", "--tf32"),
        ("use cache=False for no cache", "use --cache none for no cache"),
        ('device="emulated"', "--device emulated"),
        ('more: detail="kernels", "joined"', 'more: --detail kernels, "joined"'),
        ("leave params= out", "leave --params out"),
        # What has no option stays, and so does what is none, or tells how a model was compiled.
        ("with low_bit=True, topk=3", "with low_bit=True, topk=3"),
        ("Options(cuda_graph=False)", "Options(cuda_graph=False)"),
        (
            "give extents one name, Open(..., name=...)",
            "give extents one name, Open(..., name=...)",
        ),
        ("x = inputs[0] and topk", "x = inputs[0] and topk"),
    ],
)
def test_arguments_of_python_are_options(python: str, words: str) -> None:
    assert in_words(python) == words
