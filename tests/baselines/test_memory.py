import torch
from hypothesis import given
from hypothesis import strategies as st

from algnn.baselines.replay import keep_best, rank_in_class


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 60), st.randoms())
def test_classes_use_the_budget_and_none_is_far_behind(available, budget, random):
    codes = [code for code, count in enumerate(available) for _ in range(count)]
    random.shuffle(codes)
    given = torch.tensor(codes, dtype=torch.int64)
    kept = torch.bincount(given[keep_best(given, budget)], minlength=len(available)).tolist()
    assert sum(kept) == min(budget, sum(available))
    # a class that could keep more has at most one node less than any other keeps
    short = [(k, code) for code, (k, a) in enumerate(zip(kept, available, strict=True)) if k < a]
    assert not short or min(short)[0] >= max(kept) - 1
    # what cannot be shared equally went to the first of them
    assert [k for k, _ in short] == sorted((k for k, _ in short), reverse=True)


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(0, 50))
def test_the_best_of_each_class_stay_in_their_order(codes, budget):
    given = torch.tensor(codes, dtype=torch.int64)
    kept = keep_best(given, budget)
    assert kept.numel() == min(budget, len(codes))
    assert kept.tolist() == sorted(kept.tolist())
    for c in set(codes):
        own = [i for i, code in enumerate(codes) if code == c]
        chosen = kept[given[kept] == c].tolist()
        assert chosen == own[: len(chosen)]


def test_rank_in_class():
    assert rank_in_class(torch.tensor([], dtype=torch.int64)).tolist() == []
    assert rank_in_class(torch.tensor([1, 1, 0, 1, 0])).tolist() == [0, 1, 0, 2, 1]
