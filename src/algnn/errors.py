"""Errors that bad input can cause.

Every error a user can cause is one of these. All are `ValueError`; each message is one line that
names the argument, what was wrong with it and what would be right.
"""


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
