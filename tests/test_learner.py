"""Bad input: a named error that says argument, problem and remedy, and a learner as it was."""

import copy
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

import algnn
from algnn.analytic.joint import JointRidge
from algnn.analytic.privacy.model import PrivateALGNN
from algnn.checks import check_labels, check_nodes
from algnn.errors import AlgnnError, DeviceError, InputError, NotFittedError
from algnn.graph.propagate import csr, to_csr
from algnn.learner import shortened

NODES = [0, 1, 2, 3, 4, 5]
LABELS = [0, 1, 2, 0, 1, 2]


def quick(**changes):
    paper = {"encoder": "gcn", "head": "ridge", "gamma": 0.01}
    small = {"width": 32, "hidden": 8, "epochs": 2, "device": "cpu"}
    return algnn.ALGNN(**{**paper, **small, **changes})


def with_x(graph, x):
    return Data(x=x, edge_index=graph.edge_index)


def spoiled(graph, value):
    x = graph.x.clone()
    x[7, 3] = value
    return with_x(graph, x)


# what is wrong: (graph → graph, nodes, labels, words of the message)
BAD_SESSIONS = {
    "nan": (lambda g: spoiled(g, math.nan), NODES, LABELS, "NaN or infinite.*node 7"),
    "inf": (lambda g: spoiled(g, math.inf), NODES, LABELS, "NaN or infinite"),
    "inf as float32": (
        lambda g: with_x(g, spoiled(g, 0).x.double() + 1e300),
        NODES,
        LABELS,
        "NaN or infinite",
    ),
    "out of range": (lambda g: g, [0, 60], [0, 1], r"nodes holds 60: ids must lie in 0 … 59"),
    "negative": (lambda g: g, [0, -1], [0, 1], "nodes holds -1"),
    "repeated": (lambda g: g, [4, 5, 4], [0, 1, 0], "nodes holds 4 more than once"),
    "lengths": (lambda g: g, NODES, LABELS[:-1], r"labels has shape \[5\] for 6 nodes"),
    "empty": (lambda g: g, [], [], "nodes is empty"),
    "empty mask": (lambda g: g, torch.zeros(60, dtype=torch.bool), [], "nodes is empty"),
    "short mask": (lambda g: g, torch.ones(9, dtype=torch.bool), LABELS, "mask of 9"),
    "node floats": (lambda g: g, [0.5, 1.5], [0, 1], "nodes has type"),
    "node table": (lambda g: g, [[0, 1]], [0, 1], "nodes has shape"),
    "node words": (lambda g: g, ["a", "b"], [0, 1], "nodes must be"),
    "no nodes": (lambda g: g, None, LABELS, "nodes must be"),
    "label floats": (lambda g: g, [0, 1], [0.5, 1.0], "floats that are not whole, or"),
    "label nan": (lambda g: g, [0, 1], [float("nan"), 1.0], "labels holds nan at place 0 .1 of 2"),
    "label -1": (lambda g: g, [0, 1], torch.tensor([1, -1]), "-1 at place 1.*leave these nodes"),
    "label empty": (lambda g: g, [0, 1], ["a", ""], "at place 1 .1 of 2 are -1, None, NaN or"),
    "label huge float": (
        lambda g: g,
        [0, 1],
        [1e300, 1.0],
        "floats that are not whole, or",
    ),
    "label dates": (lambda g: g, [0, 1], np.array(["2026", "2027"], "M8[Y]"), "labels has type"),
    "label objects": (lambda g: g, [0, 1], [object(), 1], "give only ints or only strings"),
    "label table": (lambda g: g, [0, 1], [[0], [1]], "labels has shape"),
    "label ragged": (lambda g: g, [0, 1], [[0], [1, 2]], "labels must be"),
    "label mix": (lambda g: g, [0, 1], ["a", 1], "labels mixes strings with 1"),
    "label NUL": (lambda g: g, [0, 1], ["a", "a\0"], r"labels holds 'a\\x00', which ends in NUL"),
    "label sparse": (lambda g: g, [0, 1], torch.ones(2).to_sparse(), "labels must be"),
    "label rounded": (
        lambda g: g,
        [0, 1],
        torch.tensor([2.0**24, 1.0]),
        "floats that are not whole, or",
    ),
    "label bfloat": (lambda g: g, [0, 1], torch.ones(2, dtype=torch.bfloat16), "labels must be"),
    "node huge": (lambda g: g, [0, 2**70], [0, 1], "below 2.63"),
    "label none": (lambda g: g, [0, 1], [None, 1], "labels holds None at place 0"),
    "label huge": (lambda g: g, [0, 1], np.array([2**63, 1], dtype=np.uint64), "beyond 64 bits"),
    "no graph": (lambda g: None, NODES, LABELS, "graph is a NoneType"),
    "no features": (lambda g: Data(edge_index=g.edge_index), NODES, LABELS, r"graph\.x must be"),
    "flat features": (lambda g: with_x(g, g.x[:, 0]), NODES, LABELS, r"graph\.x must be"),
    "complex": (lambda g: with_x(g, g.x + 0j), NODES, LABELS, r"graph\.x\.real"),
    "sparse columns": (
        lambda g: with_x(g, g.x.to_sparse_csc()),
        NODES,
        LABELS,
        r"graph\.x must be a tensor .* dense or sparse \(CSR or COO\)",
    ),
    "sparse indices": (
        lambda g: with_x(g, csr(torch.tensor([0, 1]), torch.tensor([99]), torch.ones(1), (1, 12))),
        NODES,
        LABELS,
        r"graph\.x is a sparse tensor with invalid indices",
    ),
    "sparse sums": (
        lambda g: with_x(g, torch.sparse_coo_tensor([[3, 3], [1, 1]], [2e38, 2e38], g.x.shape)),
        [0, 1],
        [0, 1],
        r"NaN or infinite values \(first at node 3\)",
    ),
    "sparse NaN": (
        lambda g: with_x(g, to_csr(g.x.index_fill(0, torch.tensor([4]), torch.nan))),
        NODES,
        LABELS,
        r"NaN or infinite values \(first at node 4\)",
    ),
    **{
        f"weights {name}": (
            lambda g, weights=weights: Data(x=g.x, edge_index=g.edge_index, edge_weight=weights(g)),
            NODES,
            LABELS,
            words,
        )
        for name, weights, words in (
            (
                "too few",
                lambda g: torch.ones(3),
                r"edge_weight must be a dense tensor",
            ),
            ("no tensor", lambda g: [1.0], r"graph\.edge_weight must be"),
            (
                "below 0",
                lambda g: -torch.ones(g.edge_index.size(1)),
                "edge_weight holds",
            ),
            ("NaN", lambda g: torch.full((g.edge_index.size(1),), torch.nan), "edge_weight holds"),
        )
    },
    "no edges": (lambda g: Data(x=g.x), NODES, LABELS, r"graph\.edge_index must be"),
    "edge floats": (
        lambda g: Data(x=g.x, edge_index=g.edge_index.float()),
        NODES,
        LABELS,
        r"give torch\.int64",
    ),
    "edge range": (
        lambda g: Data(x=g.x[:50], edge_index=g.edge_index),
        NODES,
        LABELS,
        r"names nodes from 0 to 59: they must lie in 0 … 49",
    ),
}
LATER_ONLY = {
    "width": (lambda g: with_x(g, g.x[:, :5]), NODES, LABELS, "5 features.*had 12"),
    "kind of label": (lambda g: g, [0, 1], ["a", "b"], "labels are strings"),
}
FIRST_ONLY = {
    "one class": (lambda g: g, [0, 4], [3, 3], "only class 3: .* at least two classes"),
}


def check_refused(model, method, graph, nodes, labels, words):
    with pytest.raises(InputError, match=words) as caught:
        getattr(model, method)(graph, nodes, labels)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("case", [*BAD_SESSIONS, *FIRST_ONLY])
def test_a_bad_first_session_is_refused_and_the_next_one_works(small_graph, method, case):
    change, nodes, labels, words = {**BAD_SESSIONS, **FIRST_ONLY}[case]
    model = quick()
    check_refused(model, method, change(small_graph), nodes, labels, words)
    with pytest.raises(NotFittedError):
        model.predict(small_graph)
    model.partial_fit(small_graph, NODES, LABELS)
    assert model.classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("case", [*BAD_SESSIONS, *LATER_ONLY])
def test_a_bad_later_session_changes_nothing(small_graph, case):
    change, nodes, labels, words = {**BAD_SESSIONS, **LATER_ONLY}[case]
    model = quick().fit(small_graph, NODES, LABELS)
    untouched = copy.deepcopy(model)
    scores = model.decision_function(small_graph)
    check_refused(model, "partial_fit", change(small_graph), nodes, labels, words)
    assert np.array_equal(model.decision_function(small_graph), scores)
    for each in (model, untouched):
        each.partial_fit(small_graph, [8, 9], [3, 3])
    assert torch.equal(model.weights_, untouched.weights_)


@pytest.mark.parametrize("case", FIRST_ONLY)
def test_a_bad_fit_keeps_what_was_known(small_graph, case):
    change, nodes, labels, words = FIRST_ONLY[case]
    model = quick().fit(small_graph, NODES, LABELS)
    scores = model.decision_function(small_graph)
    check_refused(model, "fit", change(small_graph), nodes, labels, words)
    assert np.array_equal(model.decision_function(small_graph), scores)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gamma": 0, "head": "slda"}, "gamma=0 leaves γ to be chosen"),
        ({"gamma": -1}, "gamma=-1 must be a number"),
        ({"gamma": 10**400}, "gamma=10+ must be a number of at least 0 and below 1.79"),
        ({"gamma": np.complex128(1)}, "gamma=.* must be a number of at least 0$"),
        ({"gamma": Fraction(1, 2)}, r"gamma=Fraction\(1, 2\) must be a number"),
        ({"head": np.array(["ridge", "ncm"])}, r"head=array\(.* is unknown: use one of"),
        ({"encoder": "magic"}, "encoder='magic' is unknown"),
        ({"gamma": -1.0}, "gamma=-1.0"),
        ({"gamma": math.nan}, "gamma=nan"),
        ({"gamma": math.inf}, "gamma=inf"),
        ({"gamma": "1"}, "gamma='1'"),
        ({"width": 0}, "width=0 must be a whole number of at least 1"),
        ({"width": 10.0}, "width=10.0"),
        ({"hidden": True}, "hidden=True"),
        ({"epochs": -1}, "epochs=-1"),
        ({"dropout": 1.0}, "dropout=1.0 must be a number of at least 0 and below 1"),
        ({"lr": -0.1}, "lr=-0.1"),
        ({"weight_decay": None}, "weight_decay=None"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**70}, "below 9.22337e"),
        ({"head": []}, "head=.. is unknown"),
        ({"expansion": "wide"}, "use one of gcn, plain"),
        ({"head": "bald"}, "head='bald' is unknown: use one of ridge"),
    ],
)
def test_bad_parameters_are_named_when_they_are_used(small_graph, changes, words):
    model = quick(**changes)
    with pytest.raises(InputError, match=words):
        model.fit(small_graph, NODES, LABELS)


def test_nothing_can_be_asked_before_the_first_session(small_graph, tmp_path):
    model = quick()
    for ask in (
        lambda: model.predict(small_graph),
        lambda: model.decision_function(small_graph),
        lambda: model.save(tmp_path / "a.safetensors"),
        lambda: model.classes_,
        lambda: model.weights_,
        lambda: model.statistics_,
    ):
        with pytest.raises(NotFittedError, match="call fit or partial_fit first"):
            ask()
    assert model.retained_bytes() == 0
    assert list(tmp_path.iterdir()) == []


def test_bad_questions_are_refused(small_graph):
    model = quick().fit(small_graph, NODES, LABELS)
    for change, nodes, words in (
        (lambda g: g, [60], "nodes holds 60"),
        (lambda g: with_x(g, g.x[:, :5]), None, "5 features"),
        (lambda g: spoiled(g, math.nan), [0], "NaN"),
        (lambda g: None, [0], "graph is a NoneType"),
    ):
        with pytest.raises(InputError, match=words):
            model.predict(change(small_graph), nodes)
    assert model.predict(small_graph, []).shape == (0,)
    assert model.predict(small_graph, [3, 3]).shape == (2,)
    # arrays of every make
    expected = model.predict(small_graph, [2, 1, 0])
    for nodes in (np.arange(3)[::-1], np.array([2, 1, 0], dtype=">i8"), np.array([2, 1, 0], "u1")):
        assert np.array_equal(model.predict(small_graph, nodes), expected)


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda scores: scores[:, :-1], r"\[5, 2\] for 5 nodes and 3 cl"),
        (lambda scores: scores[1:], r"\[4, 3\] for 5 nodes and 3 cl"),
        (lambda scores: scores.numpy(), "ndarray for 5 nodes and 3 cl"),
        (lambda scores: scores * float("nan"), "NaN"),
    ],
)
def test_scores_of_another_shape_or_nan_are_no_answers(small_graph, spoil, found):
    class Own(algnn.ALGNN):
        def _scores(self, graph, nodes):
            return spoil(super()._scores(graph, nodes))

    model = Own(device="cpu").fit(small_graph, NODES, LABELS)
    for ask in (model.predict, model.decision_function, model.predict_proba):
        with pytest.raises(AlgnnError, match=rf"Own._scores gave {found}"):
            ask(small_graph, [0, 1, 2, 3, 4])


def test_a_graph_that_turns_bad_in_place_is_noticed(small_graph):
    model = quick().fit(small_graph, NODES, LABELS)
    small_graph.x[0, 0] = math.nan
    with pytest.raises(InputError, match="NaN"):
        model.predict(small_graph)
    small_graph.x[0, 0] = 0.0
    assert model.predict(small_graph).shape == (60,)


@pytest.mark.parametrize("device", ["cuda:99", "quantum", "meta", 7, None, torch.device("cpu")])
def test_a_device_that_is_not_there_is_named(small_graph, device):
    with pytest.raises(DeviceError, match=re.escape(f"device={device!r}")):
        quick(device=device).fit(small_graph, NODES, LABELS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_asked_for_and_absent(small_graph, tmp_path):
    with pytest.raises(DeviceError, match="use device='cpu' or 'auto'"):
        quick(device="cuda").fit(small_graph, NODES, LABELS)
    # saved where there was a GPU, loaded where there is none
    model = quick().fit(small_graph, NODES, LABELS)
    model.device = "cuda"
    model.save(tmp_path / "a.safetensors")
    assert algnn.ALGNN.load(tmp_path / "a.safetensors").device == "cpu"
    with pytest.raises(DeviceError):
        algnn.ALGNN.load(tmp_path / "a.safetensors", device="cuda")


class Constant(algnn.Learner):
    """One of the user's own, whose constructor takes neither a seed nor a device."""

    def __init__(self, score=1.0):
        self.score = score

    def _learn(self, graph, nodes, labels, learned):
        return sorted({*(learned or []), *labels.tolist()})

    def _scores(self, graph, nodes):
        return torch.full((len(nodes), len(self._learned)), self.score)

    def _state(self):
        return {"nothing": torch.zeros(1)}, {}

    def _restore(self, tensors, facts):
        return facts["classes"]

    @property
    def classes_(self):
        return np.array(self._learned)

    @property
    def n_features_in_(self):
        return 12


def test_a_learner_without_a_device_of_its_own_is_saved_and_loaded(small_graph, tmp_path):
    model = Constant(score=2.0).fit(small_graph, NODES, LABELS)
    model.save(tmp_path / "a.safetensors")
    again = Constant.load(tmp_path / "a.safetensors")
    assert again.get_params() == {"score": 2.0}
    assert again.predict(small_graph).tolist() == model.predict(small_graph).tolist()


def test_every_error_is_a_value_error():
    for name in algnn.__all__:
        item = getattr(algnn, name)
        if isinstance(item, type) and issubclass(item, Exception):
            assert issubclass(item, AlgnnError)
            assert issubclass(item, ValueError)


def test_an_html_table_for_notebooks(small_graph):
    names = np.array(["<b>", "fox", "owl & co"])
    for model in (quick(), JointRidge(device="cpu"), PrivateALGNN(epsilon=4.0, device="cpu")):
        assert "not fitted yet" in model._repr_html_()
        model.fit(small_graph, NODES, names[LABELS])
        shown = model._repr_html_()
        assert "<b>" not in shown
        for text in ("&lt;b&gt;", "owl &amp; co", "encoder", "12 inputs", "nodes per class"):
            assert text in shown
        assert f"{model.retained_bytes():,} bytes" in shown
        assert model._repr_mimebundle_() == {"text/plain": repr(model), "text/html": shown}
    assert "&lt;b&gt;: 2, fox: 2" in quick().fit(small_graph, NODES, names[LABELS])._repr_html_()
    assert "γ = 0.01" in quick().fit(small_graph, NODES, LABELS)._repr_html_()
    changed = quick().fit(small_graph, NODES, LABELS).set_params(width=9)
    assert "width=9 was set after fit" in changed._repr_html_()
    assert "classes</th><td style='text-align:left'>0: none" in model_of_nothing(small_graph)


def model_of_nothing(graph):
    return quick().fit(graph, NODES, LABELS).blank()._repr_html_()


def test_of_many_classes_the_first_are_shown():
    assert shortened(map(str, range(22))).endswith("18, 19, … 2 more")
    assert shortened([]) == "none"


# -- nodes and labels -----------------------------------------------------------------------------


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


@pytest.mark.parametrize("one", [5, np.int64(5), np.array(5)])
def test_a_single_id_is_a_node(one):
    graph = algnn.load("digits")
    model = algnn.ALGNN(width=256).fit(graph, range(50), graph.y[:50])
    assert model.predict(graph, one).tolist() == model.predict(graph, [5]).tolist()
