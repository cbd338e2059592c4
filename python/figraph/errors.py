"""errors.py: what the library refuses, as exceptions that carry its sentence.

One class for each status of figraph.h, so that a loop can catch what it knows how to answer. str()
of an error is the library's sentence, which names what was wrong, its value and the limit.
"""

from __future__ import annotations

from . import abi


class Error(Exception):
    """A call that was refused. `status` is the number that figraph.h has for the reason."""

    status: int = 0

    @property
    def retryable(self) -> bool:
        """True where the call changed nothing and the same call may succeed later."""
        return 20 <= self.status <= 29


class Invalid(Error, ValueError):
    """A value is wrong; the sentence names it and its limit."""


class Order(Error):
    """The call is right at another moment; the sentence says at which."""


class TooLarge(Error, ValueError):
    """A step is larger than a limit of the spec, or than every bucket."""


class Unbound(Error):
    """A tensor or a callback that the step needs was never given."""


class Unsupported(Error, NotImplementedError):
    """Valid, but nothing in this library does it."""


class Callback(Error):
    """A callback failed; where it raised an exception, that is this one's cause."""


class Busy(Error):
    """Every slot of the plan ring is in flight: wait, then call again."""


class Timeout(Error, TimeoutError):
    """What was waited for is still running."""


class Io(Error, OSError):
    """A file could not be opened, read, written or renamed."""


class Format(Error, ValueError):
    """Not a .fig file, or a damaged one."""


class Stale(Error):
    """A sound file that this library must capture anew."""


class NoMemory(Error, MemoryError):
    """Host or device memory is short."""


class NoDevice(Error):
    """No driver, no such device, or a driver that is too old."""


class Driver(Error):
    """The device refused a call; the engine is still usable."""


class Lost(Error):
    """The device is gone for good: the engine can only be closed."""


CLASSES = {
    abi.FIG_INVALID: Invalid,
    abi.FIG_ORDER: Order,
    abi.FIG_TOO_LARGE: TooLarge,
    abi.FIG_UNBOUND: Unbound,
    abi.FIG_UNSUPPORTED: Unsupported,
    abi.FIG_CALLBACK: Callback,
    abi.FIG_BUSY: Busy,
    abi.FIG_TIMEOUT: Timeout,
    abi.FIG_IO: Io,
    abi.FIG_FORMAT: Format,
    abi.FIG_STALE: Stale,
    abi.FIG_NOMEM: NoMemory,
    abi.FIG_NO_DEVICE: NoDevice,
    abi.FIG_DRIVER: Driver,
    abi.FIG_LOST: Lost,
}
for _status, _class in CLASSES.items():
    _class.status = _status


def of(status: int, sentence: str) -> Error:
    """The exception for a status."""
    error = CLASSES.get(status, Error)(sentence)
    error.status = status
    return error
