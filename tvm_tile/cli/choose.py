"""``tvm-tile choose``."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from tvm_tile.cli.model import SOURCE, add_model_command, add_options, count, options_of
from tvm_tile.cli.output import print_table
from tvm_tile.cli.spelling import in_words
from tvm_tile.cli.verbosity import tell
from tvm_tile.errors import InputError
from tvm_tile.errors.arguments import check_output

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|ms|us)", re.ASCII)
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_PRICE = re.compile(r"(.+)=(\d+(?:\.\d+)?)", re.ASCII)


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Tell which GPU, and how many samples a run, give what, and at what price."
    sub = add_model_command(commands, "choose", run, text, SOURCE, on_many=True)
    add_options(sub)
    sub.add_argument(
        "--batch",
        dest="batches",
        type=count(1),
        action="append",
        required=True,
        metavar="N",
        help="samples of a run, for the batch that the model, or a range in --input, leaves "
        "open; may be repeated",
    )
    sub.add_argument(
        "--latency", type=duration, metavar="5ms", help="what a run may take: in s, ms or us"
    )
    sub.add_argument(
        "--price",
        dest="prices",
        type=price,
        action="append",
        default=[],
        metavar="DEVICE=2.5",
        help="what an hour of a device costs, in any currency; may be repeated",
    )
    sub.add_argument("--json", action="store_true", help="for other programs")
    sub.add_argument("--page", type=Path, help="also write an HTML file that draws them")


def run(arguments: argparse.Namespace) -> None:
    """Print a table of devices and batches, and write its page if that was asked for."""
    import tvm_tile
    from tvm_tile.frontend import all_sizes, read_model

    if arguments.page is not None:
        check_output(arguments.page)
    model = read_model(arguments.model, params=arguments.params)
    inputs = {}
    for batch in arguments.batches:
        found = all_sizes(model, dict(arguments.inputs), batch)
        if not found.is_batched:
            raise InputError(
                "--batch is the extent of a batch that the model leaves open",
                f"no input of {arguments.model.name} has an open extent that is a batch",
                "export the model with its first axis open; or, where another extent is the batch, "
                "leave that open: --input NAME=100x[1:64]",
            )
        inputs[batch] = found.sizes
    offers = tvm_tile.choose(
        dict.fromkeys(arguments.batches, model),
        arguments.device or ["auto"],
        latency=arguments.latency,
        prices=dict(arguments.prices),
        inputs=inputs,
        options=options_of(arguments),
    )
    for note in offers.notes:
        tell(f"note: {in_words(note)}", arguments.verbosity)
    if arguments.page is not None:
        offers.save_page(arguments.page, title=arguments.model.name)
    if arguments.json:
        print(offers.to_json())
    else:
        print_table(list(offers.rows()), names=2)


def duration(text: str) -> float:
    """The seconds in ``5ms``.

    Raises:
        argparse.ArgumentTypeError: it is no such text.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} does not look like 5ms, 250us or 0.1s")
    return float(found[1]) * _SECONDS[found[2]]


def price(text: str) -> tuple[str, float]:
    """The device and the price in ``nvidia/h200=2.5``.

    Raises:
        argparse.ArgumentTypeError: it is no such text.
    """
    found = _PRICE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} does not look like nvidia/h200=2.5")
    return found[1], float(found[2])
