"""keywords.py: refuses unknown keywords, and suggests the nearest known one."""

from __future__ import annotations

import difflib
from typing import Iterable


def check(noun: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises TypeError for the first unknown keyword; the message names the nearest known one."""
    names = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(names)}"
            raise TypeError(f"{noun} has no {name}: {hint}")
