"""Every error fastpipe raises on purpose: the fact, the cause, the remedy.

    FastpipeError
    ├── OptionError (TypeError, ValueError)      an argument of `fastpipe.pipeline` is unknown or has no such value
    ├── DeviceError (RuntimeError, ValueError)   the device asked for is not in this machine
    ├── MissingBackendError (ImportError)        the engine asked for is not installed
    ├── InputError (ValueError, TypeError)       one input of a call cannot be processed; `index` says which
    │   └── InputTooLongError (RuntimeError)     more tokens than the model has positions
    ├── ExportError (RuntimeError)               an engine cannot take this model
    ├── ArtifactError (OSError)                  a stored artifact is missing or damaged
    ├── UnsafeFileError (ValueError)             a file from elsewhere is not handed to an engine
    ├── FetchError (RuntimeError)                a file that the hub has did not get here whole
    └── UnsupportedOnEngineError (AttributeError) something only the torch model object can do

    FastpipeWarning (UserWarning)
    ├── FallbackWarning                          something slower runs than was asked for or could have been
    └── CacheWarning                             the cache folder cannot be used, or an entry was damaged

The builtin beside each name is a second base: code that caught what transformers raised there keeps working.
"""

from __future__ import annotations


class FastpipeError(Exception):
    """Base of all errors raised on purpose.

    Args:
        fact: What happened, naming the thing it happened to.
        remedy: What the reader can do about it.
    """

    def __init__(self, fact: str, *, remedy: str = "") -> None:
        super().__init__(f"{fact.rstrip('.')}. {remedy}" if remedy else fact)
        self.fact = fact
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(kind: type[FastpipeError], args: tuple[object, ...], state: dict[str, object]) -> FastpipeError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class OptionError(FastpipeError, TypeError, ValueError):
    """An argument is unknown, or has a value that does not exist."""


class DeviceError(FastpipeError, RuntimeError, ValueError):
    """The device asked for is not in this machine."""


class MissingBackendError(FastpipeError, ImportError):
    """The engine asked for is not installed."""


class InputError(FastpipeError, ValueError, TypeError):
    """One input cannot be processed.

    Args:
        fact: What is wrong with it, without its position.
        index: Its position in the call's inputs, counted from 0; `None` for a call with a single input.
        remedy: What the reader can do about it.
    """

    def __init__(self, fact: str, *, index: int | None = None, remedy: str = "") -> None:
        super().__init__(fact if index is None else f"item {index}: {fact}", remedy=remedy)
        self.index = index


class InputTooLongError(InputError, RuntimeError):
    """An input has more tokens than the model has positions."""


class ExportError(FastpipeError, RuntimeError):
    """An engine cannot take this model, or gives other results than torch does."""


class ArtifactError(FastpipeError, OSError):
    """A stored artifact is missing or damaged."""


class UnsafeFileError(FastpipeError, ValueError):
    """A file from elsewhere is not handed to an engine."""


class FetchError(FastpipeError, RuntimeError):
    """A file that the hub has did not get here whole; what it was for is built instead."""


class UnsupportedOnEngineError(FastpipeError, AttributeError):
    """Something that only the torch model object can do."""


class FastpipeWarning(UserWarning):
    """Base of all warnings, so that one filter reaches them all."""


class FallbackWarning(FastpipeWarning):
    """Something slower runs than was asked for, or than the hardware could run."""


class CacheWarning(FastpipeWarning):
    """The cache folder cannot be used, or one of its entries was damaged."""
