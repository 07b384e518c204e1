"""The decisions of one run of the fusing stages, which another run takes again.

Stages that join functions ask two things: what a function's schedule is predicted to take
(:class:`FirstChoices`), and whether it was refused before. Both answers depend on extents. A model
that is fused at several extents must be fused alike, so the first run's answers are kept in order,
and the others are given these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from tvm_tile.device.device import Device
from tvm_tile.errors import DynamicShapeError
from tvm_tile.passes.scheduling.first_choices import FirstChoices, Rules
from tvm_tile.schedule import Scheduled

_CHOICE, _REFUSAL = "choice", "refusal"


@dataclass(frozen=True, slots=True)
class Decisions:
    """Answers, in the order in which they were asked for, and to whom each was given."""

    answers: list[tuple[str, Any]] = field(default_factory=list)

    def again(self, device: Device) -> tuple[ReplayedChoices, ReplayedRefusals]:
        """Choices and refusals that give these answers once more, from the first one on."""
        left = iter(self.answers)
        return ReplayedChoices(device, left), ReplayedRefusals(left)


class RecordedChoices(FirstChoices):
    """First choices whose answers are kept.

    Args:
        choices: answers.
        decisions: list that the answers are added to.
    """

    def __init__(self, choices: FirstChoices, decisions: Decisions) -> None:
        super().__init__(choices.device)
        self._choices, self._decisions = choices, decisions

    def __call__(self, func: tirx.PrimFunc, rules: Rules = None) -> Scheduled | None:
        """The schedule of a function, as :class:`FirstChoices` has it."""
        found = self._choices(func, rules)
        self._decisions.answers.append((_CHOICE, found))
        return found


class ReplayedChoices(FirstChoices):
    """First choices that answer as others did, whatever they are asked about.

    Args:
        device: the device that the others were made for.
        left: the answers.
    """

    def __init__(self, device: Device, left: Iterator[Any]) -> None:
        super().__init__(device)
        self._left = left

    def __call__(self, func: tirx.PrimFunc, rules: Rules = None) -> Scheduled | None:
        """The next recorded choice, whatever function is asked about."""
        found: Scheduled | None = _next(self._left, _CHOICE)
        return found


class RecordedRefusals(dict[Any, str]):
    """Why functions are refused, by their contents; what is asked for is kept.

    Args:
        refused: answers.
        decisions: list that the answers are added to.
    """

    def __init__(self, refused: Mapping[Any, str], decisions: Decisions) -> None:
        super().__init__(refused)
        self._decisions = decisions

    def get(self, key: Any, default: Any = None) -> Any:
        """The refusal kept for a key, or the default; the answer is recorded."""
        found = super().get(key, default)
        self._decisions.answers.append((_REFUSAL, found))
        return found

    def __contains__(self, key: Any) -> bool:
        found = super().__contains__(key)
        self._decisions.answers.append((_REFUSAL, found))
        return found

    def __bool__(self) -> bool:
        return True


class ReplayedRefusals(dict[Any, str]):
    """Refusals that answer as others did, whatever they are asked about."""

    def __init__(self, left: Iterator[Any]) -> None:
        super().__init__()
        self._left = left

    def get(self, key: Any, default: Any = None) -> Any:
        """The next recorded refusal, whatever key is asked for."""
        return _next(self._left, _REFUSAL)

    def __contains__(self, key: Any) -> bool:
        return bool(_next(self._left, _REFUSAL))

    def __bool__(self) -> bool:
        return True


def _next(left: Iterator[Any], kind: str) -> Any:
    """The next answer, which must be to a question of the same kind."""
    asked, answer = next(left, ("", None))
    if asked != kind:
        raise DynamicShapeError(
            "a model must be fused alike whatever its open extents are",
            "at one of them there is something else to decide than at the greatest ones",
            "give the extent, or a narrower range",
        )
    return answer
