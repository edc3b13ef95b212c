import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn import GCNConv

from algnn.gcn import GCN
from algnn.graph import propagate
from algnn.graph.propagate import Operator, blocks, normalised_adjacency, receptive_field, spmm


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[torch.Tensor, int]:
    """Directed, with self-loops and repeated edges: whatever a user may hand over."""
    nodes = draw(st.integers(1, 9))
    ids = st.integers(0, nodes - 1)
    pairs = draw(st.lists(st.tuples(ids, ids), max_size=25))
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous(), nodes


@settings(max_examples=30)
@given(edge_lists())
def test_adjacency_is_the_one_of_pyg(edges):
    edge_index, nodes = edges
    conv = GCNConv(nodes, nodes, bias=False)
    with torch.no_grad():
        conv.lin.weight.copy_(torch.eye(nodes))
        expected = conv(torch.eye(nodes), edge_index)
    found = spmm(normalised_adjacency(edge_index, nodes), torch.eye(nodes))
    torch.testing.assert_close(found, expected)


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
