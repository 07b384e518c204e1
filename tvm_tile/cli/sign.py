"""``tvm-tile sign``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    sub = commands.add_parser("sign", help="Sign a saved model, in its place.")
    sub.set_defaults(run=run)
    sub.add_argument("model", type=Path, help="a saved model (.tvmtile)")
    sub.add_argument("--key", type=Path, required=True, help="an Ed25519 private key (PEM)")


def run(arguments: argparse.Namespace) -> None:
    """Sign a saved model."""
    from tvm_tile.runtime.artifact import sign

    sign(arguments.model, arguments.key)
    print(f"{arguments.model}: signed")
