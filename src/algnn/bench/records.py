"""Names that moved to `record` and `runs`, until the last caller has followed."""

from algnn.bench.record import *  # noqa: F403
from algnn.bench.record import CONFIGURATION, Failure, Record, Run  # noqa: F401
from algnn.bench.runs import (  # noqa: F401
    done,
    failed,
    read,
    read_failures,
    read_records,
    write,
    write_atomically,
    write_failure,
)


def read_all(folder):
    return read_records(folder)


def failures(folder):
    table = read_failures(folder)
    return [
        Failure(**{k: v for k, v in row.items() if k not in ("sha256", "configuration")})
        for row in table.to_dict("records")
    ]
