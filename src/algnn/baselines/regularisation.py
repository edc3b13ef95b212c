"""Methods that hold weights or answers where they were: EWC, MAS, LwF and TWP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import grad
from torch.nn.functional import kl_div, log_softmax, one_hot, pad

from algnn.baselines.training import GradientLearner, Task, Tensors
from algnn.checkpoint import check_tensor
from algnn.errors import CheckpointError
from algnn.gcn import GCN, dropout
from algnn.graph import propagate
from algnn.graph.propagate import Field, Operator, spmm, take_rows


@dataclass(frozen=True)
class QuadraticPenalty:
    """Σ_s Σ I_s (θ − θ*_s)² = I (θ − a)² + constant over any number of sessions s."""

    # by the names of the GCN's weights; columns of the head that came later are free
    importance: Tensors  # I = Σ_s I_s; without any the penalty is 0
    anchor: Tensors  # a = Σ_s I_s θ*_s / I: I θ − Σ I_s θ*_s would cancel in float32 near θ*

    def value(self, gcn: GCN) -> Tensor:
        """Σ I (θ − a)², a scalar with a gradient for the GCN's weights."""
        if not self.importance:
            return torch.zeros((), dtype=torch.float32)
        terms = []
        for name, value in gcn.named_parameters():
            held = self.importance[name]
            terms.append((held * (value[..., : held.size(-1)] - self.anchor[name]).square()).sum())
        return torch.stack(terms).sum()

    def __add__(self, later: QuadraticPenalty) -> QuadraticPenalty:
        if not self.importance:
            return later
        importance, anchor = {}, {}
        for name, new in later.importance.items():
            wider = (0, new.size(-1) - self.importance[name].size(-1))
            importance[name] = pad(self.importance[name], wider) + new
            share = torch.where(importance[name] > 0, new / importance[name], 1.0)
            anchor[name] = torch.lerp(pad(self.anchor[name], wider), later.anchor[name], share)
        return QuadraticPenalty(importance, anchor)


def fisher_information(gcn: GCN, field: Field, codes: Tensor) -> Tensors:
    """The mean over nodes of (∇_θ ℓ_v)², ℓ_v the cross-entropy of node v at its label."""
    truth = one_hot(codes, gcn.bias2.numel())
    return node_importance(gcn, field, lambda logits: logits.softmax(1) - truth, torch.square)


def node_importance(
    gcn: GCN, field: Field, slope: Callable[[Tensor], Tensor], reduce: Callable[..., Tensor]
) -> Tensors:
    """The mean over nodes of |∇_θ f_v| or (∇_θ f_v)² (`reduce`), f_v of node v's logits alone."""
    # With S_v = Σ_m Â_vm x_m r_mᵀ over the neighbours m of v (x_m their rows of ÂX, r_m which of
    # their hidden units are on), `slope` giving δ_v = ∂f_v/∂logits [n, C], and u_v = W_2 δ_v,
    # ∇_{W_1} f_v = S_v diag(u_v) and ∇_{W_2} f_v = (Σ_m Â_vm h_m) δ_vᵀ.
    with torch.no_grad():
        mix = field.mix.matrix
        hidden = torch.relu(torch.addmm(gcn.bias1, field.inputs, gcn.weight1))
        on = (hidden > 0).to(hidden.dtype)
        mixed = spmm(mix, hidden)
        delta = slope(mixed @ gcn.weight2 + gcn.bias2)
        back = delta @ gcn.weight2.T
        weight1 = torch.zeros_like(gcn.weight1)
        for nodes, neighbours, weights in _by_degree(mix, *gcn.weight1.shape):
            # S_v diag(u_v) of a few nodes of like degree at once, [b, d, h]
            units = on[neighbours] * back[nodes][:, None, :]
            sums = torch.bmm((field.inputs[neighbours] * weights[:, :, None]).mT, units)
            weight1 += reduce(sums, out=sums).sum(0)
        return {
            "weight1": weight1 / mix.size(0),
            "bias1": reduce(back * spmm(mix, on)).mean(0),
            "weight2": reduce(mixed).T @ reduce(delta) / mix.size(0),
            "bias2": reduce(delta).mean(0),
        }


def _by_degree(mix: Tensor, inputs: int, hidden: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Groups of nodes of like degree: nodes [b], neighbours and weights [b, k], padded with 0."""
    starts = mix.crow_indices()
    degrees = starts.diff()
    ranked, order = torch.sort(degrees)
    # a node needs S_v, and a row of inputs and one of units for each neighbour
    floats = inputs * hidden + ranked * (inputs + hidden)
    room = propagate.BLOCK_BYTES // 4  # of float32: S_v should not leave the cache
    first = 0
    while first < order.numel():
        ahead = floats[first : first + max(1, room // (inputs * hidden))]
        fitting = torch.arange(1, ahead.numel() + 1, device=ahead.device) * ahead <= room
        last = first + max(1, int(fitting.sum()))
        nodes = order[first:last]
        steps = torch.arange(max(1, int(ranked[last - 1])), device=starts.device)
        inside = steps < degrees[nodes][:, None]
        entries = torch.where(inside, starts[nodes][:, None] + steps, 0)
        yield nodes, mix.col_indices()[entries], torch.where(inside, mix.values()[entries], 0.0)
        first = last


PARTS = ("importance", "anchor")  # of a penalty


class Penalised(GradientLearner):
    """A learner whose memory is, in each part that it `keeps`, a number for each weight."""

    keeps: ClassVar[tuple[str, ...]] = PARTS

    def _past(self, task: Task, kind: str = "", strength: float = 1.0) -> QuadraticPenalty:
        """The penalty of earlier sessions; if no anchor is kept, towards the weights before."""
        memory, weights = task.memory, task.before.weights
        importance = {name: strength * memory[f"{kind}importance.{name}"] for name in weights}
        anchor = {name: memory.get(f"{kind}anchor.{name}", w) for name, w in weights.items()}
        return QuadraticPenalty(importance, anchor)

    def _kept(self, task: Task, importance: Tensors, kind: str = "") -> Tensors:
        """Entries of a memory: copies, since a file cannot hold an anchor that is a weight too."""
        total = self._past(task, kind) + QuadraticPenalty(importance, task.gcn.weights)
        kept = {kind + part: getattr(total, part) for part in PARTS if kind + part in self.keeps}
        return {f"{part}.{n}": t.clone() for part, of in kept.items() for n, t in of.items()}

    def _loss(self, task: Task, prepared: Any) -> Tensor:
        loss: Tensor = task.loss() + prepared.value(task.gcn)
        return loss

    def _check_memory(self, memory: Tensors, weights: Tensors, classes: int) -> None:
        wanted = {f"{part}.{name}": w for part in self.keeps for name, w in weights.items()}
        if memory.keys() != wanted.keys():
            raise CheckpointError(f"the memory does not hold {', '.join(wanted)} and nothing else")
        for name, weight in wanted.items():
            check_tensor(name, memory[name], tuple(weight.shape), weight.dtype)


@dataclass(kw_only=True, eq=False, repr=False)
class EWC(Penalised):
    """Elastic weight consolidation (EWC).

    At session t, with θ*_s the weights after session s,

        L = L_t + λ/2 Σ_{s<t} Σ_i F_{s,i} (θ_i − θ*_{s,i})²,
        F_s = 1/n_s Σ_v (∇_θ ℓ_v)²,

    where ℓ_v is the cross-entropy of node v of session s at its label, without dropout: the
    diagonal of the empirical Fisher information. It keeps ΣF_s and the mean of the θ*_s weighted by
    F_s, which give the same gradients.

    Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", PNAS 2017.
    """

    strength: float = 1e7  # λ, a thousand times the usual 1e4: see settings/ewc.toml
    _limits: ClassVar = {"strength": 0}

    def _prepare(self, task: Task) -> QuadraticPenalty:
        return self._past(task, strength=self.strength / 2)

    def _remember(self, task: Task, prepared: QuadraticPenalty) -> Tensors:
        return self._kept(task, fisher_information(task.gcn, task.field, task.codes))


@dataclass(kw_only=True, eq=False, repr=False)
class MAS(Penalised):
    """Memory aware synapses (MAS).

    At session t, with θ* the weights after session t−1,

        L = L_t + λ Σ_i Ω_i (θ_i − θ*_i)²,
        Ω = Σ_{s<t} 1/n_s Σ_v |∇_θ ‖z_v‖²|,

    where z_v are the logits of node v of session s over the classes seen by then, without dropout.
    No label enters Ω, which is all that it keeps. New columns of the head have Ω = 0: that of a
    class that comes alone can rise above all others, whatever λ, as in `Bare`.

    Aljundi et al., "Memory aware synapses: learning what (not) to forget", ECCV 2018.
    """

    strength: float = 1.0  # λ
    keeps: ClassVar = ("importance",)
    _limits: ClassVar = {"strength": 0}

    def _prepare(self, task: Task) -> QuadraticPenalty:
        return self._past(task, strength=self.strength)

    def _remember(self, task: Task, prepared: QuadraticPenalty) -> Tensors:
        omega = node_importance(task.gcn, task.field, lambda logits: 2 * logits, torch.abs)
        return self._kept(task, omega)


@dataclass(kw_only=True, eq=False, repr=False)
class LwF(GradientLearner):
    """Learning without forgetting (LwF).

    At session t, with z_v the logits of node v and z*_v those that the model before the session,
    the teacher, gives it,

        L = L_t + λ T² 1/n_t Σ_v KL(softmax(z*_v / T) ‖ softmax(z_v / T)),

    over the session's own nodes and the classes that the teacher knows, without dropout in its
    answers; its weights are all that is kept. With one new class a session it comes out as `Bare`
    does: nothing opposes the new column, which the term does not compare with the old ones.

    Z. Li and D. Hoiem, "Learning without forgetting", ECCV 2016; IEEE TPAMI 40(12), 2018.

    `strength` is λ and `temperature` T: the higher, the more small probabilities count.
    """

    strength: float = 1.0
    temperature: float = 2.0
    _limits: ClassVar = {"strength": 0, "temperature": 1e-12}

    def _prepare(self, task: Task) -> Tensor | None:
        if not task.before.sessions:
            return None
        with torch.no_grad():
            return GCN.from_weights(task.before.weights).forward(task.field)

    def _loss(self, task: Task, prepared: Tensor | None) -> Tensor:
        if prepared is None:
            return task.loss()
        logits = task.gcn(task.field, task.masks)
        kept = distillation(logits[:, : prepared.size(1)], prepared, self.temperature)
        return task.mean_loss(logits, task.codes) + self.strength * kept


def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL(softmax(teacher / T) ‖ softmax(student / T)), the mean over nodes."""
    answers = log_softmax(student / temperature, dim=1)
    wanted = log_softmax(teacher / temperature, dim=1)
    return temperature**2 * kl_div(answers, wanted, reduction="batchmean", log_target=True)


KINDS = ("loss.", "topology.")  # the two importances, kept apart
# Below this share of non-zeros, products with ÂX are faster as sparse ones on the CPU: at the size
# of Cora's base session 17 ms dense, and 7, 12 and 27 ms sparse at shares of 0.06, 0.1 and 0.25.
SPARSE_BELOW = 0.1
# the penalty of earlier sessions; the field's inputs, sparse where that pays; and of its edges the
# rows of these that they come from and lead to
_Prepared = tuple[QuadraticPenalty, Tensor | Operator, Tensor, Tensor]


@dataclass(kw_only=True, eq=False, repr=False)
class TWP(Penalised):
    """Topology-aware weight preserving (TWP).

    At session t, with θ*_s the weights after session s,

        L = L_t + Σ_{s<t} Σ_i (λ_l I^loss_{s,i} + λ_t I^topo_{s,i}) (θ_i − θ*_{s,i})²
              + β ‖λ_l I^loss_t + λ_t I^topo_t‖₁,

        I^loss_s = |∇_θ L_s|,   I^topo_s = |∇_θ T_s|,
        T_s = mean of e_vm² over v and m ∈ N(v) ∪ v,   e_vm = (W_2ᵀ h_v)ᵀ tanh(W_2ᵀ h_m).

    h being hidden units. β's term has the importances of the epoch's own forward pass; gradients
    flow through it. Kept are, without dropout, sums of the importances and means of the θ*_s
    weighted by them. docs/baselines.md says what differs from the paper.

    Liu et al., "Overcoming catastrophic forgetting in graph neural networks", AAAI 2021.

    `loss_strength` and `topology_strength` are λ_l and λ_t; `beta` is β, 0.01 in public code.
    """

    loss_strength: float = 10.0
    topology_strength: float = 10.0
    beta: float = 1e-6  # at 0.01 the base session itself suffers: see settings/twp.toml
    keeps: ClassVar = tuple(f"{kind}{part}" for kind in KINDS for part in PARTS)
    _limits: ClassVar = {"loss_strength": 0, "topology_strength": 0, "beta": 0}

    def _prepare(self, task: Task) -> _Prepared:
        strengths = (self.loss_strength, self.topology_strength)
        loss, topology = map(partial(self._past, task), KINDS, strengths)
        inputs: Tensor | Operator = task.field.inputs
        if task.field.inputs.count_nonzero() <= SPARSE_BELOW * task.field.inputs.numel():
            inputs = Operator(task.field.inputs.to_sparse_csr())
        # each node reaches itself, so it has a row among the inputs too
        reached = torch.unique(take_rows(task.adjacency, task.nodes).col_indices())
        rows, mix = torch.searchsorted(reached, task.nodes), task.field.mix.matrix
        targets = rows.repeat_interleave(mix.crow_indices().diff())
        return loss + topology, inputs, mix.col_indices(), targets

    def _loss(self, task: Task, prepared: _Prepared) -> Tensor:
        if self.beta * max(self.loss_strength, self.topology_strength) == 0:
            return task.loss() + prepared[0].value(task.gcn)
        loss, topology = _values(task, prepared, task.masks)
        norms = []
        for value, strength in ((loss, self.loss_strength), (topology, self.topology_strength)):
            # gradients are returned, not left in the parameters, where they would count twice
            gradients = grad(value, [*task.gcn.parameters()], create_graph=True, allow_unused=True)
            norms += [strength * g.abs().sum() for g in gradients if g is not None]
        return loss + self.beta * torch.stack(norms).sum() + prepared[0].value(task.gcn)

    def _remember(self, task: Task, prepared: _Prepared) -> Tensors:
        memory: Tensors = {}
        names, parameters = zip(*task.gcn.named_parameters(), strict=True)
        for kind, value in zip(KINDS, _values(task, prepared, None), strict=True):
            found = grad(value, parameters, retain_graph=True, materialize_grads=True)
            importance = {name: g.abs() for name, g in zip(names, found, strict=True)}
            memory |= self._kept(task, importance, kind)
        return memory


def _values(task: Task, prepared: _Prepared, draw: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """L_t and T_t of one forward pass, with dropout where it can be drawn."""
    gcn, (_, inputs, neighbours, targets) = task.gcn, prepared
    before = inputs @ gcn.weight1 + gcn.bias1
    with torch.no_grad():
        gate = dropout((before > 0).to(before.dtype), gcn.dropout, draw)
    # ReLU and dropout as one factor: the same values and derivatives, in a third of the passes
    projected = (before * gate) @ gcn.weight2
    loss = task.mean_loss(task.field.mix @ projected + gcn.bias2, task.codes)
    return loss, topology_score(projected, targets, neighbours)


def topology_score(projected: Tensor, targets: Tensor, neighbours: Tensor) -> Tensor:
    """The mean of e² over edges, e = p_targetᵀ tanh(p_neighbour), for p = W_2ᵀ h of each node."""
    return (projected[targets] * projected.tanh()[neighbours]).sum(1).square().mean()
