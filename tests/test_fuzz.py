"""Checkpoints from strangers: damaged files by the thousand, and nothing but named errors.

A thousand, the same in each run; ``ALGNN_FUZZ=10000`` (or ``make stress``) for more. All cases
run in one process of their own, whose memory is held to a little more than it needs without any
file, so that a small file which asks for much fails here.
"""

from __future__ import annotations

import copy
import json
import os
import random
import struct
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

CASES = int(os.environ.get("ALGNN_FUZZ", "1000"))
SEED = 20_260_101
# what all cases together may take on top of what the process has when it starts
ROOM = 48 * 2**20

NONSENSE = (
    *(None, True, False, 0, 1, -1, 3, 12, 255, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**30),
    *(0.5, -0.5, 1e-320, 1e300, float("inf"), float("nan"), 10**400),
    *("", "a", "0", "F64", "I64", "BOOL", "cpu", "cuda:99", "meta", "ridge", "balanced", "\ud800"),
    *("x" * 5000, "../../etc/passwd", "\x00", "1" * 5000),
    *([], [0], [[]], [-1, -2], [2**40, 2**40], [0, 2**62], [1] * 100, list("abc"), ["a", 1]),
    *({}, {"a": 1}, {"name": "raw"}, {"__class__": "os.system"}),
)


def damaged(content: bytes, chance: random.Random) -> bytes:
    """A checkpoint with something wrong, or with changes that do not matter."""
    return chance.choice(WAYS)(content, chance)


def truncated(content, chance):
    return content[: chance.randrange(len(content))]


def bits_flipped(content, chance):
    found = bytearray(content)
    # as often in the header as behind it, though it is the smaller part
    end = chance.choice([8, header_end(content), len(content)])
    for _ in range(chance.choice([1, 1, 2, 8, 64])):
        found[chance.randrange(end)] ^= 1 << chance.randrange(8)
    return bytes(found)


def overwritten(content, chance):
    start = chance.randrange(len(content))
    length = chance.choice([1, 8, 64, 512])
    patch = chance.choice([b"\x00", b"\xff", b"{", b'"', b"9"]) * length
    patch = chance.choice([patch, chance.randbytes(length)])
    return content[:start] + patch + content[start + chance.choice([0, length]) :]


def piece_missing(content, chance):
    start = chance.randrange(len(content))
    return content[:start] + content[start + chance.choice([1, 8, 100]) :]


def header_changed(content, chance):
    """A value of the header replaced, and the file put together again as it should be."""
    header, data = taken_apart(content)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        spoil(header, chance)
    return put_together(header, data)


def facts_changed(content, chance):
    """A value of what algnn itself wrote into the header replaced."""
    header, data = taken_apart(content)
    ours = json.loads(header["__metadata__"]["algnn"])
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        spoil(ours, chance)
    text = chance.choice([json.dumps(ours)] * 20 + ["[" * 5000, json.dumps(ours)[:-9]])
    header["__metadata__"]["algnn"] = text
    return put_together(header, data)


def tensors_changed(content, chance):
    """Shapes, types and values that the file can hold and a learner cannot."""
    header, data = taken_apart(content)
    names = [name for name in header if name != "__metadata__"]
    entry = header[chance.choice(names)]
    start, end = entry["data_offsets"]
    kind = chance.randrange(5)
    if kind == 0:
        entry["shape"] = [entry_size(entry), *[1] * chance.randrange(4)]
    elif kind == 1:
        entry["dtype"] = {"F64": "I64", "I64": "F64", "F32": "I32"}.get(entry["dtype"], "U8")
    elif kind == 2:
        entry["shape"] = [chance.choice([0, 2**20, 2**40, 2**62]), 0, chance.choice([1, 2**31])]
        entry["data_offsets"] = [start, start]
        data = data[:start] + data[end:]
        for name in names:
            first, last = header[name]["data_offsets"]
            if first >= end:
                header[name]["data_offsets"] = [first - (end - start), last - (end - start)]
    elif kind == 3 and end - start >= 8:
        place = chance.randrange(start, end - 7)
        value = chance.choice([float("nan"), float("inf"), -1e300, 1e-320, -1.0, 1e18])
        data = data[:place] + struct.pack("<d", value) + data[place + 8 :]
    else:
        del header[chance.choice(names)]
    return put_together(header, data)


WAYS = (
    *(truncated, bits_flipped, overwritten, piece_missing),
    *(header_changed, facts_changed, facts_changed, tensors_changed),
)


def spoil(tree, chance):
    """Replace, remove, or add something anywhere below a dict or list."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        if not keys:
            return
        key = chance.choice(keys)
        below = tree[key]
        if isinstance(below, dict | list) and below and chance.random() < 0.8:
            tree = below
            continue
        what = chance.randrange(10)
        if what == 0:
            del tree[key]
        elif what == 1 and isinstance(tree, dict):
            tree[chance.choice(["unheard_of", "", "bank", "expansion"])] = copy.deepcopy(below)
        elif what == 2 and isinstance(below, int | float):
            tree[key] = below * chance.choice([-1, 2, 1000, 10**9]) + chance.choice([0, 1])
        else:
            tree[key] = copy.deepcopy(chance.choice(NONSENSE))
        return


def header_end(content):
    return 8 + int.from_bytes(content[:8], "little")


def taken_apart(content):
    end = header_end(content)
    return json.loads(content[8:end]), content[end:]


def put_together(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry_size(entry):
    size = 1
    for length in entry["shape"]:
        size *= length
    return size


def examine(folder: Path, path: Path, cases: int, seed: int) -> dict[str, int]:
    """Load damaged files; anything but a named error, or a learner that works, ends it."""
    import resource

    import torch

    import algnn
    from algnn.analytic.joint import JointRidge
    from algnn.analytic.privacy.model import PrivateALGNN
    from algnn.baselines.replay import ERGNN

    torch.set_num_threads(1)
    kinds = dict.fromkeys(("default", "decaying", "paper"), algnn.ALGNN)
    kinds |= {"joint": JointRidge, "private": PrivateALGNN, "replay": ERGNN}
    originals = {name: (folder / f"{name}.safetensors").read_bytes() for name in kinds}
    graph = small_graph()
    for name, kind in kinds.items():
        kind.load(folder / f"{name}.safetensors", device="cpu").predict(graph)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))

    chance, seen = random.Random(seed), Counter[str]()
    for case in range(cases):
        name = chance.choice(list(kinds))
        path.write_bytes(damaged(originals[name], chance))
        try:
            # what a checksum would notice is what shall be looked at here
            model = kinds[name].load(path, device="cpu", verify=False)
            seen["loaded"] += 1
            model.predict(graph)
        except algnn.AlgnnError as error:
            seen[type(error).__name__] += 1
            complaint = f"{error!r} {error.__cause__!r}"
            if "enough memory" in complaint or "more memory" in complaint or "alloc" in complaint:
                raise RuntimeError(f"case {case} of {name}: {complaint}") from error
            if "\n" in str(error) or len(str(error)) > 1000:
                raise RuntimeError(f"case {case} of {name}: a long message") from error
        except BaseException as error:
            raise RuntimeError(f"case {case} of {name}: {error!r}") from error
    return dict(seen)


def small_graph():
    """Sixteen nodes, two of each class beside each other."""
    import torch
    from torch_geometric.data import Data

    ring = torch.arange(16)
    edge_index = torch.stack(
        [torch.cat([ring, (ring + 1) % 16]), torch.cat([(ring + 1) % 16, ring])]
    )
    return Data(x=torch.eye(16)[:, :6] + 0.1, edge_index=edge_index)


@pytest.fixture
def folder(tmp_path):
    import algnn
    from algnn.analytic.joint import JointRidge
    from algnn.analytic.privacy.model import PrivateALGNN
    from algnn.baselines.replay import ERGNN

    paper = {"encoder": "gcn", "head": "ridge", "gamma": 0.1}
    sizes = {"hidden": 3, "width": 5, "epochs": 2, "device": "cpu"}
    learners = {
        "default": algnn.ALGNN(device="cpu"),
        "decaying": algnn.ALGNN(half_life=2.0, device="cpu"),
        "paper": algnn.ALGNN(**paper, **sizes),
        "joint": JointRidge(**paper, **sizes),
        "private": PrivateALGNN(epsilon=5.0, width=4, device="cpu"),
        "replay": ERGNN(hidden=3, epochs=2, budget=3, device="cpu"),
    }
    graph = small_graph()
    for name, model in learners.items():
        model.fit(graph, [0, 1, 2, 3], [0, 1, 0, 1]).partial_fit(graph, [4, 5], [2, 2])
        model.save(tmp_path / f"{name}.safetensors")
    return tmp_path


def test_damaged_files(folder, run_process):
    # files in memory where that can be had: most of the time would go into writing them
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else folder) as place:
        case = Path(place, "case.safetensors")
        code = Path(__file__).read_text("utf-8")
        seen = json.loads(run_process(code, folder, case, CASES, SEED))
    # most were noticed, and some changes do not matter: the last digits of a sum, say
    assert sum(n for name, n in seen.items() if name != "loaded") > CASES / 2
    assert seen["loaded"] > CASES / 100
    assert seen["CheckpointError"] > CASES / 2


if __name__ == "__main__":
    print(json.dumps(examine(*map(Path, sys.argv[1:3]), *map(int, sys.argv[3:]))))
