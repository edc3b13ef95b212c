from math import log

import pytest
import torch
from torch.nn.functional import cross_entropy

import algnn
from algnn.baselines.regularisation import LwF, distillation
from algnn.baselines.training import Bare

SMALL = {"hidden": 8, "epochs": 10, "lr": 0.02, "device": "cpu"}


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
        if len(self.seen) == task.before.sessions:
            gradient = torch.autograd.grad(loss, task.gcn.weight2, retain_graph=True)[0]
            self.seen.append((loss, cross_entropy(logits, task.codes), prepared, gradient))
        elif task.before.sessions:
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


def test_old_answers_last_longer_than_with_bare(small_graph, learn):
    nodes = algnn.ClassStream(small_graph, base=2, step=2)[1].nodes

    def logits(model, sessions=None):
        learned = learn(model, small_graph, sessions, step=2)
        return torch.from_numpy(learned.decision_function(small_graph, nodes))[:, :2]

    before = logits(LwF(**SMALL), 1)
    bare, lwf = (
        distillation(logits(model), before, 2.0)
        for model in (Bare(**SMALL), LwF(strength=10.0, **SMALL))
    )
    assert lwf < 0.5 * bare
