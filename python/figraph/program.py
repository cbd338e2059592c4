"""program.py: starts the command-line programs that this package contains.

`figraph`, `python -m figraph` and `figraph-launch` replace their process with the program. `run`
starts it as a child and reads its JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NoReturn

from . import abi, errors
from .native import FOLDER, sentence

TEXT = {"-h", "--help", "--version", "--format"}  # with these, the output is no JSON


def become(name: str) -> NoReturn:
    """Replaces this process with the program."""
    path = os.path.join(FOLDER, name)
    os.execv(path, [name, *sys.argv[1:]])


def main() -> NoReturn:
    """Runs the figraph program; the console script figraph calls this function."""
    become("figraph")


def launch() -> NoReturn:
    """Runs figraph-launch; the console script figraph-launch calls this function."""
    become("figraph-launch")


def inspect(path: str, bucket: int, columns: int) -> str:
    """Returns the output of `figraph inspect`, `columns` wide. bucket 0 means the summary."""
    words = ["--bucket", str(bucket)] if bucket else []
    done = subprocess.run([os.path.join(FOLDER, "figraph"), "inspect", path, *words],
                          capture_output=True, text=True,
                          env={**os.environ, "COLUMNS": str(columns)})
    if done.returncode == 0:
        return done.stdout
    raise errors.of(abi.FIG_INVALID, done.stderr.strip().removeprefix("figraph: "))


def word_of(value: Any) -> str:
    """Returns a word of a command line: a text, a path or a number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)  # type: ignore[arg-type]
    raise TypeError(f"a word of the command is {value!r}, it must be a str, a path or a number")


def run(command: str, *words: Any) -> Any:
    """Runs `figraph COMMAND WORDS --json` and returns the JSON as dicts and lists. A word may be a
    str, a path or a number. --help, --version and --format print no JSON; for these it returns the
    text.

    Raises errors.Error if the command's check failed, and errors.Invalid if the command refused its
    input. Both carry the program's message.

    >>> run("replay", "tutorial.fig", "--steps", "8", "--check")["passed"]
    True
    """
    path = os.path.join(FOLDER, "figraph")
    asked = [word_of(word) for word in (command, *words)]
    is_text = any(word.partition("=")[0] in TEXT for word in asked)
    given = [path, *asked] if is_text else [path, *asked, "--json"]
    done = subprocess.run(given, capture_output=True)
    if done.returncode == 0:
        return sentence(done.stdout) if is_text else json.loads(done.stdout)
    told = sentence(done.stderr).strip().removeprefix("figraph: ")
    status = abi.FIG_OK if done.returncode == 1 else abi.FIG_INVALID
    raise errors.of(status, told or f"figraph {command} ended with {done.returncode}")
