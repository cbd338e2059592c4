"""__main__.py: runs the command line as python -m figraph."""

from .program import main

main()
