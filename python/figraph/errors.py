"""errors.py: one exception class for each status of figraph.h.

A loop can catch the kinds of error that it can handle. str() of an error is the library's message,
which names the wrong field, its value and the limit.
"""

from __future__ import annotations

from . import abi


class Error(Exception):
    """The library refused a call. `status` is the number of the reason in figraph.h."""

    status: int = 0

    @property
    def retryable(self) -> bool:
        """True if the call changed nothing and the same call may succeed later."""
        return 20 <= self.status <= 29


class Invalid(Error, ValueError):
    """A value is wrong; the message names the value and its limit."""


class Order(Error):
    """The call came at the wrong moment; the message says when it is allowed."""


class TooLarge(Error, ValueError):
    """A step is larger than a limit of the spec, or than every bucket."""


class Unbound(Error):
    """The step needs a tensor that was not bound or a callback that was not registered."""


class Unsupported(Error, NotImplementedError):
    """The request is valid, but this library cannot do it."""


class Callback(Error):
    """A callback failed. If it raised an exception, __cause__ is that exception."""


class Busy(Error):
    """Every slot of the plan ring is in flight: wait, then call again."""


class Timeout(Error, TimeoutError):
    """Steps were still running when the timeout ended."""


class Io(Error, OSError):
    """A file could not be opened, read, written or renamed."""


class Format(Error, ValueError):
    """The file is not a .fig file, or it is damaged."""


class Stale(Error):
    """The file is sound, but this library cannot use it: capture it again. Or the weights of a
    Decoder's model were replaced: make a new Decoder."""


class NoMemory(Error, MemoryError):
    """The host or the device has too little memory."""


class NoDevice(Error):
    """There is no driver or no such device, or the driver is too old."""


class Driver(Error):
    """The device refused a call; the engine is still usable."""


class Lost(Error):
    """The device is gone for good: the engine can only be closed."""


class Fault(Error):
    """A bug in libfigraph: please report it, and close the object that you called."""


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
    abi.FIG_FAULT: Fault,
}
for _status, _class in CLASSES.items():
    _class.status = _status


def of(status: int, sentence: str) -> Error:
    """Returns the exception for a status, with the library's message."""
    error = CLASSES.get(status, Error)(sentence)
    error.status = status
    return error
