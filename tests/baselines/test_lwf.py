from math import log

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

import algnn
from algnn.baselines.lwf import LwF, distillation
from algnn.baselines.training import Bare
from algnn.errors import InputError

SMALL = {"hidden": 8, "epochs": 10, "lr": 0.02, "device": "cpu"}


def learn(model, stream):
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
    return model


def test_distillation_by_hand():
    # at T = 2 the teacher says (3/4, 1/4) and the student (1/4, 3/4):
    # KL = 3/4 log 3 + 1/4 log 1/3 = 1/2 log 3, times T² = 4
    teacher, student = torch.tensor([[2 * log(3), 0.0]]), torch.tensor([[0.0, 2 * log(3)]])
    assert distillation(student, teacher, 2.0).item() == pytest.approx(2 * log(3))
    # at T = 1 they say (9/10, 1/10) and (1/10, 9/10): KL = 8/10 log 9
    assert distillation(student, teacher, 1.0).item() == pytest.approx(0.8 * log(9))
    # KL is not symmetric: from (3/4, 1/4) to (1/2, 1/2) is 3/4 log 3/2 + 1/4 log 1/2
    even = torch.zeros(1, 2)
    assert distillation(even, teacher, 2.0).item() == pytest.approx(3 * log(1.5) - log(2))
    assert distillation(teacher, even, 2.0).item() == pytest.approx(2 * log(2 / 3) + 2 * log(2))
    # a node that is answered as before halves the mean
    both = distillation(torch.cat([student, even]), torch.cat([teacher, even]), 2.0)
    assert both.item() == pytest.approx(log(3))


class Probe(LwF):
    """Records the loss of each session's first epoch, its cross-entropy, and the teacher."""

    def _loss(self, task, prepared):
        loss = super()._loss(task, prepared)
        logits = task.gcn(task.field)
        if len(self.seen) == task.index:
            gradient = torch.autograd.grad(loss, task.gcn.weight2, retain_graph=True)[0]
            self.seen.append((loss, cross_entropy(logits, task.codes), prepared, gradient))
        elif task.before is not None:
            # explicit softmax and logarithms over the teacher's classes
            old = prepared.size(1)
            p = (prepared / self.temperature).exp()
            q = (logits[:, :old] / self.temperature).exp()
            p, q = p / p.sum(1, keepdim=True), q / q.sum(1, keepdim=True)
            divergence = (p * (p / q).log()).sum(1).mean()
            expected = self.strength * self.temperature**2 * divergence
            torch.testing.assert_close(
                loss - cross_entropy(logits, task.codes), expected, rtol=1e-3, atol=1e-5
            )
            self.greatest = max(self.greatest, expected.item())
        return loss


def test_teacher_is_the_model_before_the_session(small_graph):
    # without dropout the student starts where the teacher is
    model = Probe(**SMALL, dropout=0.0, strength=2.0, temperature=3.0)
    model.seen, model.greatest = [], 0.0
    for session in algnn.ClassStream(small_graph, base=2):
        nodes = session.nodes
        before = model.decision_function(session.graph, nodes) if session.index else None
        model.partial_fit(session.graph, nodes, session.labels)
        loss, own, teacher, _ = model.seen[session.index]
        assert loss.item() == pytest.approx(own.item(), abs=1e-6)
        if session.index == 0:
            assert teacher is None
        else:
            torch.testing.assert_close(teacher, torch.from_numpy(before), rtol=1e-5, atol=1e-5)
            assert not teacher.requires_grad
    assert len(model.seen) == 3
    assert model.greatest > 0.1


def test_teacher_has_no_say_on_new_classes(small_graph):
    stream = algnn.ClassStream(small_graph, base=2)
    gradients = []
    for strength in (0.0, 100.0):
        # one epoch each: the same weights before, but for what the teacher changes
        model = Probe(**{**SMALL, "epochs": 1}, strength=strength)
        model.seen, model.greatest = [], 0.0
        for session in (stream[0], stream[1]):
            model.partial_fit(session.graph, session.nodes, session.labels)
        gradients.append(model.seen[1][3])
    # with dropout the student differs from its teacher from the first epoch on
    assert (gradients[0][:, :2] != gradients[1][:, :2]).any()
    assert torch.equal(gradients[0][:, 2:], gradients[1][:, 2:])


def test_without_strength_it_is_bare_and_with_it_old_answers_last_longer(small_graph):
    stream = algnn.ClassStream(small_graph, base=2, step=2)
    base = LwF(**SMALL).fit(stream[0].graph, stream[0].nodes, stream[0].labels)
    nodes = stream[1].nodes
    before = torch.from_numpy(base.decision_function(small_graph, nodes))
    everyone = [
        torch.from_numpy(learn(model, stream).decision_function(small_graph, nodes))
        for model in (Bare(**SMALL), LwF(strength=0.0, **SMALL), LwF(strength=10.0, **SMALL))
    ]
    assert torch.equal(everyone[0], everyone[1])
    bare, _, lwf = (distillation(now[:, :2], before, 2.0).item() for now in everyone)
    assert lwf < 0.5 * bare


def test_it_keeps_its_weights_only(small_graph, tmp_path):
    model = learn(LwF(**SMALL), algnn.ClassStream(small_graph, base=2))
    model.save(tmp_path / "model.safetensors")
    tensors = load_file(tmp_path / "model.safetensors")
    names = ["weights.bias1", "weights.bias2", "weights.weight1", "weights.weight2"]
    assert sorted(tensors) == names
    assert model.retained_bytes() == sum(t.nbytes for t in tensors.values())


def test_odd_sessions(small_graph):
    model = LwF(**SMALL).fit(small_graph, [0, 1, 4, 5], ["a", "b", "a", "b"])
    model.partial_fit(small_graph, [8], ["a"])
    model.partial_fit(small_graph, [2], ["c"])
    model.partial_fit(small_graph, [9, 6, 3], ["b", "c", "d"])
    assert torch.isfinite(torch.from_numpy(model.decision_function(small_graph))).all()
    assert model.classes_.tolist() == ["a", "b", "c", "d"]


def test_it_learns_a_graph_that_grows(small_graph):
    stream = algnn.ClassStream(small_graph, base=2, edges="seen")
    assert set(learn(LwF(**SMALL), stream).predict(stream.graph(2))) <= set(range(4))


@pytest.mark.parametrize(
    "bad", [{"strength": -1.0}, {"temperature": 0.0}, {"temperature": -2}, {"temperature": "hot"}]
)
def test_bad_parameters_are_refused(small_graph, bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        LwF(**bad, device="cpu").fit(small_graph, [0, 1], [0, 1])
