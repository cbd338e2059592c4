"""counts.py: counts the calls of a server's layers in this process, by what served them.

A replay of a CUDA graph runs no Python, so it counts nothing.
"""

import dataclasses


@dataclasses.dataclass
class Counts:
    """Numbers of calls since the process began; you may set them to 0."""

    attended: int = 0  # calls that figraph served
    captured: int = 0  # those of them that a CUDA graph recorded
    passed_on: int = 0  # calls that the server's own backend served
    plans: int = 0  # plans made


counts = Counts()
