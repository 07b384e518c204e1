"""Damaged programs and weights are read or refused, and nothing else happens."""

from __future__ import annotations

from random import Random

import pytest
from relay_mutations import mutated, outcome, subjects

SUBJECTS = list(subjects())
EACH, GROUPS = 60, 10


@pytest.mark.parametrize("group", range(GROUPS))
def test_damaged_files_are_read_or_refused(group: int) -> None:
    findings = []
    for number in range(EACH):
        random = Random(GROUPS * number + group)
        subject = random.choice(SUBJECTS)
        result = outcome(subject, mutated(subject.data, random))
        if result not in ("read", "refused"):
            findings.append(f"{subject.name}, {GROUPS * number + group}: {result}")
    assert not findings
