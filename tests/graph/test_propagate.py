import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn import GCNConv

from algnn.gcn import GCN
from algnn.graph import propagate
from algnn.graph.propagate import (
    Operator,
    blocks,
    normalised_adjacency,
    receptive_field,
    spmm,
    take_rows,
    to_csr,
)


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[torch.Tensor, int]:
    """Directed, with self-loops and repeated edges: whatever a user may hand over."""
    nodes = draw(st.integers(1, 9))
    ids = st.integers(0, nodes - 1)
    pairs = draw(st.lists(st.tuples(ids, ids), max_size=25))
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous(), nodes


@settings(max_examples=30)
@given(edge_lists(), st.booleans())
def test_adjacency_is_the_one_of_pyg(edges, weighted):
    edge_index, nodes = edges
    # from 0 on, so that some edges count for nothing
    weight = torch.arange(edge_index.size(1)).double() / 3 if weighted else None
    conv = GCNConv(nodes, nodes, bias=False)
    with torch.no_grad():
        conv.lin.weight.copy_(torch.eye(nodes))
        kept = None if weight is None else weight.float()
        expected = conv(torch.eye(nodes), edge_index, kept)
    found = spmm(normalised_adjacency(edge_index, nodes, weight), torch.eye(nodes))
    torch.testing.assert_close(found, expected)


@settings(max_examples=30)
@given(edge_lists(), st.randoms(use_true_random=False))
def test_edges_may_come_in_any_order(edges, chance):
    edge_index, nodes = edges
    weight = torch.tensor([chance.choice([0.0, 0.3, 1.0, 7.0]) for _ in edge_index[0]])
    order = torch.tensor(chance.sample(range(weight.numel()), weight.numel()), dtype=torch.int64)
    one = normalised_adjacency(edge_index, nodes, weight)
    other = normalised_adjacency(edge_index[:, order], nodes, weight[order])
    assert torch.equal(one.col_indices(), other.col_indices())
    assert torch.equal(one.values(), other.values())


@settings(max_examples=30)
@given(edge_lists())
def test_rows_of_the_adjacency_are_sorted(edges):
    adjacency = normalised_adjacency(*edges)
    starts, columns = adjacency.crow_indices(), adjacency.col_indices()
    for row in range(edges[1]):
        ordered = columns[starts[row] : starts[row + 1]]
        assert bool((ordered.diff() >= 0).all())


def test_an_undirected_graph_gives_a_symmetric_matrix_with_one_loop_per_node(small_graph):
    dense = normalised_adjacency(small_graph.edge_index, small_graph.num_nodes).to_dense()
    torch.testing.assert_close(dense, dense.T)
    loops = torch.arange(small_graph.num_nodes).expand(2, -1)
    again = torch.cat([small_graph.edge_index, loops], dim=1)
    with_loops = normalised_adjacency(again, small_graph.num_nodes).to_dense()
    torch.testing.assert_close(dense, with_loops)


@settings(max_examples=30)
@given(edge_lists(), st.integers(0, 2**32 - 1))
def test_gradients_through_an_operator_are_those_of_the_dense_matrix(edges, seed):
    matrix = normalised_adjacency(*edges)
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(edges[1], 3, generator=generator, requires_grad=True)
    weight = torch.randn(edges[1], 3, generator=generator)
    (found,) = torch.autograd.grad((weight * (Operator(matrix) @ dense)).sum(), dense)
    (expected,) = torch.autograd.grad((weight * (matrix.to_dense() @ dense)).sum(), dense)
    torch.testing.assert_close(found, expected)


@settings(max_examples=30)
@given(edge_lists(), st.integers(0, 2**32 - 1))
def test_gradients_of_gradients_flow_too(edges, seed):
    matrix = normalised_adjacency(*edges)
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(edges[1], 2, generator=generator, requires_grad=True)

    def second(product):
        (first,) = torch.autograd.grad((product @ dense).pow(3).sum(), dense, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), dense)[0]

    expected = second(matrix.to_dense())
    torch.testing.assert_close(second(Operator(matrix)), expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=30)
@given(edge_lists(), st.data())
def test_a_gcn_on_a_receptive_field_equals_the_gcn_on_the_whole_graph(edges, data):
    edge_index, nodes = edges
    targets = torch.tensor(data.draw(st.lists(st.integers(0, nodes - 1), min_size=1, unique=True)))
    generator = torch.Generator().manual_seed(0)
    gcn = GCN(4, 5, 3, dropout=0.5, generator=generator)
    x = torch.randn(nodes, 4, generator=generator)
    adjacency = normalised_adjacency(edge_index, nodes)
    dense = adjacency.to_dense()
    hidden = torch.relu(dense @ x @ gcn.weight1 + gcn.bias1)
    expected = (dense @ hidden @ gcn.weight2 + gcn.bias2)[targets]
    torch.testing.assert_close(gcn(receptive_field(adjacency, x, targets)), expected)


def test_a_receptive_field_does_not_depend_on_the_block_size(small_graph, monkeypatch):
    adjacency = normalised_adjacency(small_graph.edge_index, small_graph.num_nodes)
    nodes = torch.arange(7)
    whole = receptive_field(adjacency, small_graph.x, nodes)
    monkeypatch.setattr(propagate, "BLOCK_BYTES", 100)
    piecewise = receptive_field(adjacency, small_graph.x, nodes)
    assert torch.equal(whole.inputs, piecewise.inputs)


@given(st.integers(0, 100), st.integers(1, 2**27))
def test_blocks_cover_every_row_once(rows, row_bytes):
    covered = [row for block in blocks(rows, row_bytes) for row in range(rows)[block]]
    assert covered == list(range(rows))


def test_a_node_gathers_from_those_that_point_at_it():
    """Of two edges, 0 → 1 and 2 → 1, the second three times as heavy: node 1 has a degree of 5."""
    edges, weight = torch.tensor([[0, 2], [1, 1]]), torch.tensor([1, 3])
    found = normalised_adjacency(edges, 3, weight).to_dense()
    expected = torch.eye(3)
    expected[1] = torch.tensor([1 / 5**0.5, 1 / 5, 3 / 5**0.5])
    torch.testing.assert_close(found, expected)


def test_weights_may_add_up_to_more_than_float32_holds():
    edges = torch.tensor([[1, 2], [0, 0]])
    found = normalised_adjacency(edges, 3, torch.tensor([2e38, 2e38])).to_dense()
    torch.testing.assert_close(found[0], torch.tensor([0, 1e19, 1e19]))


def test_parallel_edges_may_come_in_any_order():
    edges, weight = torch.tensor([[1, 1, 2, 1], [0, 0, 0, 0]]), torch.tensor([3.0, 1.0, 5.0, 2.0])
    found = normalised_adjacency(edges, 3, weight).values()
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]):
        again = normalised_adjacency(edges[:, order], 3, weight[order])
        assert again.values().equal(found)


def test_rows_of_any_layout():
    x = torch.tensor([[0.0, 2.0], [0.0, 0.0], [3.0, 0.0]])
    rows = torch.tensor([2, 0, 2])
    for one in (x, to_csr(x), to_csr(x.to_sparse())):
        kept = take_rows(one, rows)
        assert (kept.layout, kept.to_dense().tolist()) == (one.layout, x[rows].tolist())
    narrow = to_csr(x)
    parts = (narrow.crow_indices().int(), narrow.col_indices().int(), narrow.values())
    assert to_csr(propagate.csr(*parts, (3, 2))).col_indices().dtype == torch.int64


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int64, torch.float16])
def test_entries_that_are_there_twice_are_added_as_floats(kind):
    values = torch.tensor([1 if kind is torch.bool else 200] * 3, dtype=kind)
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1], [2, 2, 0]]), values, (2, 3))
    one = float(values[0])
    assert to_csr(twice).to_dense().tolist() == [[0, 0, 2 * one], [one, 0, 0]]
