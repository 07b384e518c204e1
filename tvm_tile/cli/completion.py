"""``tvm-tile completion``: what the Tab key gives, in bash, zsh and fish.

Each shell's script asks ``tvm-tile complete`` for the words that may come next, so that there is
one list of commands and options, the parser. Where a file may come, the shell completes its name.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_SCRIPTS = {
    "bash": """\
_tvm_tile() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do COMPREPLY+=("$line"); done \\
        < <(tvm-tile complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _tvm_tile tvm-tile
""",
    "zsh": """\
#compdef tvm-tile
_tvm_tile() {
    local -a found
    found=("${(@f)$(tvm-tile complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#}")
    if (( $#found )); then compadd -a found; else _files; fi
}
compdef _tvm_tile tvm-tile
""",
    "fish": """\
function __tvm_tile
    set -l words (commandline -opc) (commandline -ct)
    set -l found (tvm-tile complete $words[2..-1] 2>/dev/null | string match -v '')
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c tvm-tile -f -a '(__tvm_tile)'
""",
}
ASKED = "complete"
"""The word that shells ask by; no command of the parser, for what follows it is unfinished."""

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
    sub.add_argument("shell", choices=tuple(_SCRIPTS))


def run(arguments: argparse.Namespace) -> None:
    """Print the script of a shell."""
    print(_SCRIPTS[arguments.shell], end="")


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Words that the last of some words may become.

    Args:
        parser: parser of the whole command line.
        words: words behind the program's name; the last is what was typed of the word at the
            cursor.

    Returns:
        Whole words; none where the shell is to complete the name of a file.
    """
    *before, last = words or [""]
    # Bash makes three words of "--device=nv", other shells one.
    before, last = [word for word in before if word != "="], "" if last == "=" else last
    commands = _commands_of(parser)
    command = next((commands[word] for word in before if word in commands), None)
    if command is None:
        return _starting(last, [*commands, *parser._option_string_actions])
    option, equals, value = last.partition("=")
    if equals:
        named = command._option_string_actions.get(option)
        return [f"{option}={one}" for one in _starting(value, _values(named))]
    awaiting = command._option_string_actions.get(before[-1])
    if awaiting is not None and awaiting.nargs != 0:
        return _starting(last, _values(awaiting))
    if last.startswith("-"):
        return _starting(last, (name for name in command._option_string_actions if name[1] == "-"))
    positional = (action for action in command._actions if not action.option_strings)
    return _starting(last, (value for action in positional for value in _values(action)))


def _starting(text: str, words: Any) -> list[str]:
    """Words that start with a text."""
    return [word for word in words if word.startswith(text)]


def _commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of all commands, by name."""
    found = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(next(found).choices)


def _values(action: argparse.Action | None) -> Iterator[str]:
    """Values that an argument may have, as far as these are words that are known."""
    if action is None:
        return
    if action.choices is not None:
        yield from map(str, action.choices)
    elif action.dest == "device":
        from tvm_tile.device import devices

        yield from ("auto", "cuda", "rocm")
        yield from (device.name for device in devices())
        yield from map(str, Path().glob("*.json"))
