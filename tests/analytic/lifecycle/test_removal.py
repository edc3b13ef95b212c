"""Whether nodes can be in sums: never a wrong yes."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algnn.analytic.lifecycle.removal import holds


@settings(max_examples=50, deadline=None)
@given(
    st.integers(2, 70),
    st.integers(2, 40),
    st.integers(1, 40),
    st.sampled_from([0, 1e-6, 1e-3, 0.1, 1]),
    st.integers(0, 2**32),
    st.data(),
)
def test_what_is_said_to_be_within_the_sums_is(rows, width, columns, off, seed, data):
    """By any columns, of nodes that are in the sums and of others."""
    generator = torch.Generator().manual_seed(seed)
    Z = torch.randn(rows, width, generator=generator).double().relu()
    part = Z[: data.draw(st.integers(1, rows))]
    noise = torch.randn(part.shape, generator=generator).double()
    gone, G = part + off * noise, Z.mT @ Z
    slack = 1e-5 * part.square().sum() + 1e-12 * G.trace()
    if bool(holds(G, gone, slack, min(columns, width))):
        least = torch.linalg.eigvalsh(G - gone.mT @ gone)[0]
        assert float(least) >= -float(slack) * (1 + 1e-6)


def test_few_columns_tell_who_is_within_the_sums():
    """Wide features, of which some are always zero: yes to those who are, no to all others."""
    generator = torch.Generator().manual_seed(0)
    Z = torch.randn(40, 512, generator=generator).double().relu()
    Z[:, ::3] = 0
    G, gone = Z.mT @ Z, Z[10:15]
    noise = torch.randn(gone.shape, generator=generator).double()
    slack = 1e-5 * gone.square().sum()
    said = [bool(holds(G, gone + off * noise, slack, 72)) for off in (0, 1e-9, 1e-3, 1)]
    assert said == [True, True, False, False]
    assert bool(holds(G, torch.cat([Z, 1e-9 * Z]), 1e-5 * Z.square().sum(), 72))
    assert not bool(holds(G, 1.01 * gone, slack, 72))
    # too few columns to tell
    assert not bool(holds(G, gone, slack, 39))
