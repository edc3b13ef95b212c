"""The command line; each module holds the commands for one purpose.

Imports of torch and matplotlib stand inside the commands, so that ``algnn --help`` does not wait
for them.
"""

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from algnn.cli import asking, benching, living, partitioning, reporting
from algnn.errors import AlgnnError, is_out_of_memory

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, on the process's own arguments by default.

    The result is the exit code: 0; 2 for anything that the user can mend, said in one line on
    stderr; 130 after Ctrl-C.
    """
    command, code = get_command(app), 0
    if argv is None and hasattr(sys.stdout, "reconfigure") and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # for γ where the encoding has none
    try:
        try:
            # not its main, which would print a line of its own after Ctrl-C
            arguments = sys.argv[1:] if argv is None else list(argv)
            with command.make_context("algnn", arguments) as context:
                command.invoke(context)
        except typer.Exit as leaving:
            code = leaving.exit_code
        print(end="", flush=True)
    except AlgnnError as error:
        return _complain(str(error))
    except (KeyboardInterrupt, typer.Abort):
        if argv is None:
            # the process ends now: who presses twice shall not see it stumble over its own exit
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return _complain("interrupted", 130)
    except OSError as error:
        # a full disk, or a reader of our output who has seen enough: Python would try to write the
        # rest once more, and complain, at exit
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.ENOSPC and not error.filename:  # that of a file has its name
            words = "files may be written already, so look before you do it again"
            return _complain(f"stdout cannot be written ({error.strerror}): {words}", 1)
        return 1 if isinstance(error, BrokenPipeError) else _complain(str(error))
    except SystemExit as leaving:  # typer and rich leave so where stdout is closed
        return leaving.code if isinstance(leaving.code, int) else 1
    except Exception as error:
        if is_out_of_memory(error):
            words = "use smaller settings (width, hidden) or a smaller graph"
            return _complain(f"out of memory: {words}")
        # click's errors by what they can do: some versions of typer carry a click of their own
        if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
            raise
        path = getattr(getattr(error, "ctx", None), "command_path", "")
        return _complain(error.format_message() + (f" Try {path} --help" if path else ""))
    return code


def _complain(message: str, code: int = 2) -> int:
    print("algnn:", " ".join(message.split()), file=sys.stderr)
    return code


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Learn the classes of a graph one after another, without forgetting."""
    if version:
        from algnn import __version__

        print("algnn", __version__)
    elif context.invoked_subcommand is None:
        # with rich it is printed already, and nothing is left to say
        print(context.get_help(), end="")


app.command()(reporting.demo)  # the first command of the list
for part in (living, asking, partitioning, benching, reporting):
    app.add_typer(part.commands)
