"""A model that is a file: opened by one writer at a time, changed, and put back."""

from collections.abc import Iterator
from contextlib import contextmanager

from algnn import checkpoint
from algnn.analytic.model import ALGNN
from algnn.analytic.privacy.model import PrivateALGNN
from algnn.checkpoint import Path
from algnn.errors import InputError
from algnn.files import locked

Model = ALGNN | PrivateALGNN


def load_model(path: Path, device: str | None = None) -> Model:
    """The model in a file, of whichever kind it is."""
    private = checkpoint.peek(path)[0]["kind"] == PrivateALGNN.__name__
    return (PrivateALGNN if private else ALGNN).load(path, device)


@contextmanager
def open_model(path: Path, device: str | None = None) -> Iterator[Model]:
    """Load a model, change it, and save it, while nobody else changes the file.

    It takes the lock that `Learner.save` and the commands of the shell take. Another writer on this
    machine waits and then starts from what this one has written: no change is lost. Who only reads
    the file never waits, and finds the old model or the new one. If the block raises, the file
    stays as it was. A thread that has the file open cannot open it once more.

    Parameters
    ----------
    path : str or path
        A file that `save` wrote, of an `ALGNN` or a `PrivateALGNN`.
    device : str, optional
        As for `Learner.load`.

    Yields
    ------
    ALGNN or PrivateALGNN
        The model; written back when the block ends, if it has changed.

    Examples
    --------
    >>> import algnn, tempfile
    >>> graph = algnn.load("digits")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = folder + "/model.safetensors"
    ...     algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200]).save(path)
    ...     with open_model(path) as model:
    ...         _ = model.partial_fit(graph, range(200, 300), graph.y[200:300])
    ...     int(algnn.ALGNN.load(path).statistics_.n.sum())
    300
    """
    checkpoint.peek(path)  # a lock would make the folder of a file that is not there
    with locked(path) as already:
        if already:  # else the change that is written last would undo the other
            raise InputError(
                f"{path} is open in this thread already: change the model that was opened there, or"
                " leave that block (await nothing in it) before it is opened again"
            )
        model = load_model(path, device)
        before, params = model._learned, model.get_params()
        yield model
        if model._learned is not before or model.get_params() != params:
            model.save(path)
