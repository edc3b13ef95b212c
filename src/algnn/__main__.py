"""``python -m algnn`` is the command ``algnn``."""

from algnn.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
