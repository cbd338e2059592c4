"""sentences.py: runs test functions, whose names are sentences, and prints how many passed."""

import sys
import traceback


def run(cases):
    failed = 0
    for case in cases:
        try:
            case()
        except Exception:
            failed += 1
            print(f"{case.__name__}:")
            traceback.print_exc(file=sys.stdout)
    print(f"{len(cases) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


def refused(words, call, kinds=(Exception,)):
    try:
        call()
    except kinds as error:
        assert words in str(error), f'"{words}" is not in "{error}"'
        return
    raise AssertionError(f'"{words}": taken')
