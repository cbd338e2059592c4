"""program.py: the command line, which this package brings as a program.

`figraph` and `figraph-launch` become it; `run` asks it for JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NoReturn

from . import abi, errors
from .native import FOLDER


def become(name: str) -> NoReturn:
    """Puts the program in place of this process."""
    path = os.path.join(FOLDER, name)
    os.execv(path, [name, *sys.argv[1:]])


def main() -> NoReturn:
    """The console script figraph."""
    become("figraph")


def launch() -> NoReturn:
    """The console script figraph-launch."""
    become("figraph-launch")


def run(command: str, *words: str) -> Any:
    """What `figraph COMMAND WORDS --json` prints, as Python's own dicts and lists.

    A command that checks something and finds it wrong raises errors.Error, one that is refused
    errors.Invalid, both with the program's sentence:

    >>> run("replay", "tutorial.fig", "--steps", "8", "--check")["passed"]
    True
    """
    path = os.path.join(FOLDER, "figraph")
    done = subprocess.run([path, command, *words, "--json"], capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout)
    sentence = done.stderr.strip().removeprefix("figraph: ")
    status = abi.FIG_OK if done.returncode == 1 else abi.FIG_INVALID
    raise errors.of(status, sentence or f"figraph {command} ended with {done.returncode}")
