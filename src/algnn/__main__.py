"""The command ``algnn``, also as ``python -m algnn``."""

import sys

# these answer without torch; the others take seconds to load
QUICK = ("methods", "datasets", "inspect", "records")


def main() -> int:
    """Say "loading" on a terminal, before the command line is imported, and run the command."""
    words = sys.argv[1:]
    slow = bool(words) and not words[0].startswith("-") and words[0] not in QUICK
    if slow and "--help" not in words and sys.stderr is not None and sys.stderr.isatty():
        # whatever is printed next takes its place
        print("loading", end="\r", file=sys.stderr, flush=True)
    try:
        from algnn.cli import main as run

        return run()
    except KeyboardInterrupt:  # before the command line could handle it
        print("algnn: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
