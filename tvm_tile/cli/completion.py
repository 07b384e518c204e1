"""``tvm-tile completion``: what the Tab key gives, in bash, zsh and fish.

Each shell's script, which argcomplete writes, runs ``tvm-tile`` itself for the words that may come
next, so that there is one list of commands and options, the parser.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_INSTALLED = {
    "bash": 'eval "$(tvm-tile completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(tvm-tile completion zsh)" in ~/.zshrc, behind compinit',
    "fish": "tvm-tile completion fish > ~/.config/fish/completions/tvm-tile.fish",
}


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Print a script that completes words of this command in a shell."
    places = "; ".join(f"{shell}: {place}" for shell, place in _INSTALLED.items())
    sub = commands.add_parser("completion", help=text, description=text, epilog=places)
    sub.set_defaults(run=run)
    sub.add_argument("shell", choices=tuple(_INSTALLED))


def run(arguments: argparse.Namespace) -> None:
    """Print the script of a shell."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["tvm-tile"], shell=arguments.shell), end="")


def answer_shell(parser: argparse.ArgumentParser) -> None:
    """Tell a shell what the word at its cursor may become, and end the process.

    Nothing happens where no shell asks: its script sets environment variables. Options are
    completed once their first hyphen is typed; where nothing else is known, names of files are.

    Args:
        parser: parser of the whole command line.
    """
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options=False)


def device_names(**_: Any) -> Iterator[str]:
    """What ``--device`` takes: an argcomplete completer."""
    from tvm_tile.device import devices

    yield from ("auto", "cuda", "rocm")
    yield from (device.name for device in devices())
    yield from map(str, Path().glob("*.json"))
