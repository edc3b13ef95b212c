"""Errors that bad input can cause.

Every error a user can cause is one of these. All are `ValueError`; each message is one line that
names the argument, what was wrong with it and what would be right.
"""

import re

# how torch begins to say that an allocation failed; an error that only speaks of memory is a bug
NO_MEMORY = re.compile("DefaultCPUAllocator: |CUDA (error: )?out of memory|_ALLOC_FAILED")


class AlgnnError(ValueError):
    """Base of all errors that bad input can cause."""


class InputError(AlgnnError):
    """An argument, graph or session that cannot be used; the model is as it was before the call."""


class NotFittedError(AlgnnError, AttributeError):
    """A learner that has not seen its first session.

    Also an `AttributeError`, as in scikit-learn: ``hasattr(model, "classes_")`` is then False.
    """


class DatasetError(AlgnnError):
    """A graph that cannot be found, downloaded or read."""


class CheckpointError(AlgnnError):
    """A file that is not a whole checkpoint of the expected kind and version."""


class DeviceError(AlgnnError):
    """A device that was asked for and is not there."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed."""
    full = isinstance(error, RuntimeError) and NO_MEMORY.search(str(error))
    return isinstance(error, MemoryError) or bool(full)
