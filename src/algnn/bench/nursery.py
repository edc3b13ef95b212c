"""A process that has imported everything once, and forks workers in no time.

Importing torch and what stands on it takes seconds and hundreds of megabytes. The nursery is a
process of its own that does so once: a worker forked from it starts at once and shares that memory.
Where there is a GPU, whose driver some of these imports call and which cannot be forked then, the
nursery imports nothing and each worker does so for itself.

Nobody outlives whoever started it, however that ends: the nursery and each worker hold one end of a
socket whose other end closes with the process that holds it; on Linux the kernel kills a worker
whose nursery is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

from algnn.errors import AlgnnError

# what a worker is born with: its socket, its output, its nursery's note of its end, a lock
GIFTS = 4
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
START = "import json, sys; sys.path[:] = json.loads(sys.argv[2]); import algnn.bench.nursery as n;"


class Child:
    """A worker as its owner sees it.

    Parameters
    ----------
    lock : int
        A file descriptor that the worker holds for as long as it lives.
    setup : dict
        What JSON can hold: the worker's first message.

    Attributes
    ----------
    connection : socket
        Messages both ways, a line of JSON each. Its end is the worker's end.
    output : int
        A pipe with whatever the worker prints.
    """

    def __init__(self, lock: int, setup: dict[str, Any]) -> None:
        self.connection, theirs = socket.socketpair()
        self.output, printed = os.pipe()
        self._status, status = os.pipe()
        self._unread = b""
        try:
            _request([theirs.fileno(), printed, status, lock])
        finally:
            theirs.close()
            os.close(printed)
            os.close(status)
        here = {"cwd": os.getcwd(), "path": sys.path, "environ": dict(os.environ)}
        self.send({**here, **setup})

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; one that finds nobody is lost, as `receive` will tell.

        Parameters
        ----------
        message : dict
        """
        with contextlib.suppress(ConnectionError):
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """The messages that have arrived; waits for some.

        Returns
        -------
        list of dict, or None
            None once the worker is gone.
        """
        try:
            arrived = self.connection.recv(65536)
        except ConnectionError:
            arrived = b""
        if not arrived:
            return None
        *lines, self._unread = (self._unread + arrived).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self, wait: bool = True) -> int | None:
        """End the worker, if it has not ended by itself.

        Parameters
        ----------
        wait : bool
            Until it has; one that has not been born yet is not worth waiting for.

        Returns
        -------
        int or None
            Its exit code, negative for a signal; None if its nursery went first, or without `wait`.
        """
        self.connection.close()
        os.close(self.output)
        with open(self._status, "rb") as status:
            code = status.read() if wait else b""
        return int(code) if code else None


def has_gpu() -> bool:
    """Whether there is a GPU's driver, without a call to it.

    Returns
    -------
    bool

    Examples
    --------
    >>> has_gpu() in (True, False)
    True
    """
    for driver in ("libcuda.so.1", "libamdhip64.so"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(driver)
            return True
    return False


def start() -> None:
    """Start the nursery now, so that it imports while its owner does something else.

    Examples
    --------
    >>> start()
    """
    global _nursery
    if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
        raise AlgnnError("worker processes need a system that can fork: use Linux or macOS")
    if _nursery is None:
        _nursery = _Nursery()


class _Nursery:
    def __init__(self) -> None:
        self.owner = os.getpid()
        self.control, theirs = socket.socketpair()
        owned = threading.current_thread() is threading.main_thread()
        command = f"{START} n.main(int(sys.argv[1]), {owned}, {has_gpu()})"
        arguments = [str(theirs.fileno()), json.dumps(sys.path)]
        # of libraries that count threads when they are imported; torch is told by each worker
        environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        with _ctrl_c_held_back(), theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", command, *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environ,
            )

    def close(self) -> None:
        self.control.close()
        if os.getpid() == self.owner:  # and not a fork of it, which has borrowed the nursery
            self.process.kill()
            self.process.wait()


_nursery: _Nursery | None = None


@atexit.register
def _close() -> None:
    global _nursery
    if _nursery is not None:
        _nursery.close()
    _nursery = None


def _request(gifts: list[int]) -> None:
    """Ask for a worker: a single byte, so that nobody can be killed half-way through asking."""
    start()
    try:
        socket.send_fds(_nursery.control, [b"+"], gifts)  # type: ignore[union-attr]
    except ConnectionError:
        _close()
        start()
        socket.send_fds(_nursery.control, [b"+"], gifts)  # type: ignore[union-attr]


@contextlib.contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Start a process that Ctrl-C does not reach: whoever started it decides what becomes of it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- the other side: what runs in the nursery -----------------------------------------------------


def main(control: int, owned: bool, fresh: bool) -> None:
    """Be the nursery: fork a worker at each request, until the owner is gone.

    Parameters
    ----------
    control : int
        File descriptor of a socket.
    owned : bool
        Whether the thread that started the process lives as long as its owner.
    fresh : bool
        Whether each worker imports for itself.
    """
    if owned:
        _die_with_parent()
    if not fresh:
        _import()
    requests = socket.socket(fileno=control)
    ended, ending = os.pipe()
    os.set_blocking(ending, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ending)
    notes: dict[int, int] = {}
    sources: list[Any] = [requests, ended]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if ended in ready:
            os.read(ended, 4096)
            _note_ends(notes)
        if requests not in ready:
            continue
        asked, gifts, _, _ = socket.recv_fds(requests, 1, GIFTS)
        if not asked:
            return
        connection, output, note, lock = gifts
        child = os.fork()
        if child == 0:
            for descriptor in (control, ended, ending, note, *notes.values()):
                os.close(descriptor)
            if fresh:
                _start_anew(connection, output, lock)
            live(connection, output)
        notes[child] = note
        for descriptor in (connection, output, lock):
            os.close(descriptor)


def _note_ends(notes: dict[int, int]) -> None:
    """Write down how each child ended that has, where its owner reads it."""
    for child in list(notes):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            note = notes.pop(child)
            with contextlib.suppress(BrokenPipeError):  # the owner is no longer interested
                os.write(note, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(note)


def _import() -> None:
    """Import all that a worker needs, so that whoever is forked from here has it."""
    from algnn.bench import environment, worker  # noqa: F401

    environment.code_version()  # of the sources as they are now that they have been imported
    # what is imported stays: no collector need look at it, nor copy it by doing so
    gc.collect()
    gc.freeze()


def _start_anew(*gifts: int) -> NoReturn:
    """Be a worker in a program of its own."""
    _die_with_parent()
    for descriptor in gifts:
        os.set_inheritable(descriptor, True)
    command = f"{START} n.live({gifts[0]}, {gifts[1]})"
    program = [sys.executable, "-c", command, "", json.dumps(sys.path)]
    os.execv(sys.executable, program)


def live(connection: int, output: int) -> NoReturn:
    """Be a worker; whatever happens, no line of the nursery's own is run any more.

    Parameters
    ----------
    connection, output : int
        File descriptors of a socket and of a pipe.
    """
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _die_with_parent()
        threading.Thread(target=_die_with_owner, args=(connection,), daemon=True).start()
        for standard in (1, 2):
            os.dup2(output, standard)
        os.close(output)
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        if "algnn.bench.worker" not in sys.modules:
            _import()
        sys.modules["algnn.bench.worker"].serve(socket.socket(fileno=connection))
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(1)


def _die_with_owner(connection: int) -> NoReturn:
    """End this process, whatever it is doing, once the other end of its socket is closed."""
    closed = select.poll()
    closed.register(connection, select.POLLHUP)
    while not closed.poll():
        pass
    os._exit(0)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it could be asked for
            os._exit(1)
