"""What forgetting a node changes, and the conditions for forgetting and merging to be exact."""

from copy import copy

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch_geometric.data import Data

from algnn.analytic.classes import union
from algnn.analytic.features.blocked import steps
from algnn.analytic.features.expansion import ExpandedGCN
from algnn.analytic.lifecycle.io import fingerprint
from algnn.analytic.state import Features, State
from algnn.errors import InputError
from algnn.graph.propagate import csr, row_of, to_csr


def check_reached(state: State, within: Tensor, chosen: Tensor) -> None:
    """Raise `InputError` unless `chosen` are all learned nodes `within` those that change."""
    outside = chosen[~torch.isin(chosen, within)]
    if outside.numel():
        raise InputError(
            f"nodes holds {int(outside[0])}, whose features do not change: name the learned nodes"
            " among reach(graph, node) and no others"
        )
    if state.membership is None:
        return
    learned = torch.from_numpy(state.membership.known(within, state.statistics.classes)[1])
    lacking = learned - torch.bincount(chosen, minlength=int(within.max()) + 1)[within]
    missing = within[lacking > 0]
    if missing.numel():
        raise InputError(
            f"nodes lacks {missing.numel()} of {int((learned > 0).sum())} learned nodes whose"
            f" features change (the first is {int(missing[0])}): name all learned nodes among"
            " reach(graph, node), each with its label, as often as it was learned (of merged sites"
            " that have the same ids: use forget_node in a site's own model, and merge again)"
        )


def check_apart(ours: State, theirs: State) -> None:
    """Raise `InputError` if two learners have learned the same nodes."""
    if ours.membership is None or theirs.membership is None:
        return
    if shared := ours.membership.shared(theirs.membership):
        raise InputError(
            f"other and this learner have both learned {shared} nodes with the same labels and"
            " features, which would count twice: merge learners that have learned apart, or say"
            " that this is meant by repeat='count' (algnn merge --overlap)"
        )
    classes = union(ours.statistics.classes, theirs.statistics.classes)
    if contradicted := ours.membership.contradicted(theirs.membership, classes):
        raise InputError(
            f"other has learned {contradicted} nodes of this learner with other labels: correct"
            " them in one of the two with relabel(graph, nodes, old, new), or let both labels count"
            " by repeat='count' (algnn merge --overlap)"
        )


def check_mergeable(ours: State, theirs: State, seeds: tuple[int, int], chooses: bool) -> None:
    """Raise `InputError` unless the sums of two learners, with these seeds, can be added up."""
    prints = fingerprint(ours.features), fingerprint(theirs.features)
    if prints[0] != prints[1]:
        raise InputError(
            f"other encodes nodes in another way (encoder {prints[1][:12]}…, features"
            f" {theirs.span.width} wide) than this learner ({prints[0][:12]}…, {ours.span.width}):"
            " merge learners that come from one blank()"
        )
    if ours.decays or theirs.decays:
        raise InputError(
            "half_life has made old sessions count for less, and which sessions of two learners are"
            " the older is not known: merge learners with half_life=0"
        )
    kinds = {one.statistics.classes.dtype.kind for one in (ours, theirs) if one.taught}
    if len(kinds) > 1:
        raise InputError("other has other labels, ints and strings: keep to one kind")
    if chooses and theirs.taught and not theirs.ways:
        raise InputError(
            "gamma=0 needs the sums of two halves, which other does not keep: give this learner a"
            " positive gamma and merge again, or teach other with gamma=0"
        )
    if ours.ways and seeds[0] != seeds[1]:
        raise InputError(
            f"other halves its nodes by seed={seeds[1]} and this learner by seed={seeds[0]}: merge"
            " learners that come from one blank()"
        )


def affected(features: Features, graph: Data, node: int) -> Tensor:
    """The nodes, sorted, whose features may change when one loses its features and edges."""
    if isinstance(features, ExpandedGCN):
        hops = 2 if features.kind == "gcn" else 1
    else:
        hops = max(map(steps, features.views))
    source, target = graph.edge_index.cpu()
    reached = torch.zeros(graph.num_nodes, dtype=torch.bool)
    reached[node] = True
    # one hop more than the receptive field: a neighbour that loses an edge weighs its other
    # neighbours otherwise, and is weighed otherwise by them
    for _ in range(hops + 1 if hops else 0):
        reached[target[reached[source]]] = True
    return reached.nonzero().squeeze(1)


def without_node(graph: Data, node: int) -> Data:
    """A copy of the graph with a node's features set to zero and its edges removed; ids stay."""
    kept = (graph.edge_index != node).all(dim=0)
    bare = copy(graph)
    # not PyG's `edge_subgraph`: it takes any list as long as there are edges for one of edges
    for name, value in graph.to_dict().items():
        if isinstance(value, Tensor) and graph.is_edge_attr(name):
            bare[name] = value[:, kept] if name == "edge_index" else value[kept]
    x = graph.x.detach()
    if x.layout == torch.strided:
        bare.x = x.index_fill(0, torch.tensor([node], device=x.device), 0)
    else:
        # its entries go, not their values alone: which columns they are in tells of the node
        x = to_csr(x)
        kept, counts = row_of(x) != node, x.crow_indices().diff()
        counts[node] = 0
        starts = pad(counts.cumsum(0), (1, 0))
        bare.x = csr(starts, x.col_indices()[kept], x.values()[kept], x.shape)
    return bare
