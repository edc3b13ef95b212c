import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algnn.checks import check_labels, check_nodes
from algnn.errors import InputError


@given(
    st.lists(st.sampled_from([*range(-1, 8), 199, 200]), max_size=8),
    st.booleans(),
)
def test_the_first_wrong_id_is_named(ids, session):
    outside = [i for i in ids if not 0 <= i < 200]
    twice = sorted(i for i in set(ids) if ids.count(i) > 1)
    words = None
    if session and not ids:
        words = "nodes is empty"
    elif outside:
        words = f"nodes holds {outside[0]}: ids must lie in 0 … 199"
    elif session and twice:
        words = f"nodes holds {twice[0]} more than once"
    whole = np.array(ids, dtype=np.int64)
    for nodes in (ids, whole, whole.astype(np.int32), torch.from_numpy(whole)):
        if words is None:
            found = check_nodes(nodes, 200, session=session)
            assert found.dtype == torch.int64
            assert found.tolist() == ids
        else:
            with pytest.raises(InputError, match=words):
                check_nodes(nodes, 200, session=session)


@given(st.lists(st.booleans(), min_size=6, max_size=6))
def test_a_mask_names_its_nodes(mask):
    nodes = [node for node, there in enumerate(mask) if there]
    for given_mask in (mask, torch.tensor(mask), torch.tensor(mask).to_sparse()):
        assert check_nodes(given_mask, 6).tolist() == nodes


def test_labels_are_not_the_callers_memory():
    labels = torch.tensor([3, 1])
    found = check_labels(labels, 2)
    labels[0] = 7
    assert found.tolist() == [3, 1]
