import copy
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch_geometric.data import Data

from algnn.graph.propagate import to_csr
from algnn.graphs import Memo, inputs_of


def test_a_value_is_computed_again_only_when_a_tensor_changed():
    memo, calls = Memo(), []
    a, b = torch.ones(2), torch.zeros(2)

    def compute():
        calls.append(1)
        return len(calls)

    assert [memo.get((a, b), compute) for _ in range(3)] == [1, 1, 1]
    b[0] = 5
    assert memo.get((a, b), compute) == 2
    assert memo.get((a, b.clone()), compute) == 3


def test_a_value_computed_while_a_tensor_changes_is_not_kept():
    memo, x = Memo(), torch.ones(1)
    read = threading.Event(), threading.Event()

    def compute():
        value = float(x)
        read[0].set()
        assert read[1].wait(60)
        return value

    with ThreadPoolExecutor() as threads:
        asked = threads.submit(memo.get, (x,), compute)
        assert read[0].wait(60)
        x[0] = 2
        read[1].set()
        assert asked.result() == 1
    assert memo.get((x,), lambda: float(x)) == 2


def test_equal_tensors_are_not_the_same_tensor():
    memo = Memo()
    with torch.inference_mode():
        unversioned = torch.ones(1)
    assert memo.get((unversioned,), lambda: "never kept") == "never kept"
    assert memo._entry is None
    assert memo.get((torch.ones(1),), lambda: "first") == "first"
    assert memo.get((torch.ones(1),), lambda: "second") == "second"


def test_nothing_is_remembered_of_a_failure():
    memo, x = Memo(), torch.ones(1)
    with pytest.raises(ZeroDivisionError):
        memo.get((x,), lambda: 1 / 0)
    assert memo.get((x,), lambda: "fine") == "fine"


def test_the_value_goes_with_its_tensors():
    memo, x = Memo(), torch.ones(1)
    held = torch.ones(3)
    memo.get((x,), lambda: held)
    assert any(held is r for r in gc.get_referents(memo._entry))
    del x
    gc.collect()
    assert memo._entry is None


def test_a_copy_starts_empty():
    memo, x = Memo(), torch.ones(1)
    memo.get((x,), lambda: "old")
    assert copy.deepcopy(memo).get((x,), lambda: "new") == "new"


def test_a_sparse_tensor_and_weights_are_part_of_the_key():
    memo, x = Memo(), to_csr(torch.eye(3))
    graph = Data(x=x, edge_index=torch.zeros(2, 1).long(), edge_weight=torch.ones(1))
    calls = []

    def value():
        return memo.get(inputs_of(graph), lambda: calls.append(1))

    for change in (lambda: None, lambda: x.values().mul_(2), lambda: graph.edge_weight.mul_(2)):
        change()
        value()
        value()
    assert len(calls) == 3
