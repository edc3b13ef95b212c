from __future__ import annotations

import pytest
import torch

from algnn.bench import worker
from algnn.bench.worker import reason
from algnn.errors import InputError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InputError("training diverged"), "InputError: training diverged"),
        (ValueError("on\n  two lines\n"), "ValueError: on two lines"),
        (KeyError("x"), "KeyError: 'x'"),
        (AssertionError(), "AssertionError"),
        (SystemExit(3), "SystemExit: 3"),
        (MemoryError(), "out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes"), "out of memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), "out of memory"),
        (RuntimeError("shapes differ"), "RuntimeError: shapes differ"),
        (OSError("not enough memory for a joke"), "OSError: not enough memory for a joke"),
    ],
)
def test_reasons(error: BaseException, expected: str) -> None:
    assert reason(error) == expected


def test_a_long_story_is_cut_short() -> None:
    told = reason(RuntimeError("CUDA error: " + "and so on " * 100))
    assert told.startswith("RuntimeError: CUDA error: and so on")
    assert told.endswith(" …")
    assert len(told) < 250


def test_what_a_torch_without_memory_really_says() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    assert reason(caught.value) == "out of memory"


def test_a_device_can_be_used_for_the_first_time() -> None:
    worker._use("cpu")
