"""Methods that keep synthetic nodes: CaT and DeLoMe."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, normalize, one_hot

from algnn.baselines.replay import keep_best, rank_in_class
from algnn.baselines.training import GradientLearner, Task, Tensors
from algnn.checkpoint import check_tensor
from algnn.gcn import glorot
from algnn.graph.propagate import Field, normalised_adjacency, receptive_field, spmm

# how far synthetic nodes X̃ [k, d] are off under W_1 and W_2, with a gradient for X̃
Match = Callable[[Tensor, Tensor, Tensor], Tensor]


class SyntheticMemory(NamedTuple):
    """Synthetic nodes, the field of those that are trained on, and what DeLoMe adds."""

    x: Tensor
    codes: Tensor
    kept: Tensor  # positions in the memory of those of earlier sessions, which are the first ones
    field: Field
    sessions: Tensor = torch.empty(0)  # of each node
    shares: Tensor = torch.empty(0)  # of each earlier one in the mean over its session
    adjustment: Tensor | float = 0.0  # τ log π [C]


@dataclass(kw_only=True, eq=False, repr=False)
class CaT(GradientLearner):
    """Condense and train: balanced continual learning in a memory of synthetic nodes.

    A session's labelled nodes V are condensed to nodes X̃ without edges (so Â = I on them) whose
    classes have the mean embeddings of real ones under random encoders, one for each step of Adam:

        min_X̃ E_{W_1, W_2} Σ_c r_c ‖ mean_{v ∈ V_c} e_v/‖e_v‖ − mean_{i ∈ X̃_c} ẽ_i/‖ẽ_i‖ ‖²,
        e = Â ReLU(Â X W_1) W_2,   ẽ = ReLU(X̃ W_1) W_2,   r_c = |V_c| / |V|.

    The GCN is trained on the memory M, the synthetic nodes of all sessions, and on nothing else,
    L = 1/C Σ_c mean_{i ∈ M_c} CE_i: each class has the same weight, and `balanced` changes nothing.

    Classes share the budget, and nodes beyond a class's share are dropped at random; where a class
    comes back, its old and its new nodes share its part in halves. X̃ starts from Â² X of nodes
    drawn at random. docs/baselines.md says what differs from the authors' code.

    Liu et al., "CaT: Balanced Continual Graph Learning with Graph Condensation", ICDM 2023.

    `budget` counts synthetic nodes over the whole stream, `condense_steps` encoders of a session;
    `condense_lr` is Adam's first step, as a share of the root mean square of the features that X̃
    starts from; it falls to 0 in a straight line.
    """

    budget: int = 300
    condense_steps: int = 50
    condense_lr: float = 0.05
    selects_in: ClassVar[str] = "prepare"
    _limits: ClassVar = {"budget": 1, "condense_steps": 0, "condense_lr": 0}
    _per_node: ClassVar[tuple[str, ...]] = ("codes",)

    def _loss(self, task: Task, prepared: SyntheticMemory) -> Tensor:
        logits, codes = task.gcn(prepared.field, task.masks), prepared.codes
        return cross_entropy(logits, codes, task.class_weights(codes))

    def _remember(self, task: Task, prepared: SyntheticMemory) -> Tensors:
        return {"x": prepared.x, "codes": prepared.codes}

    def _prepare(self, task: Task) -> SyntheticMemory:
        x = task.memory.get("x", task.x.new_empty(0, task.x.size(1)))
        codes = task.memory.get("codes", task.codes.new_empty(0))
        order = torch.randperm(task.nodes.numel(), generator=task.initial).to(task.x.device)
        offered = torch.cat([codes, task.codes[order]])
        # by rank in the class: where a class comes back, old and new nodes take turns
        ranks = torch.cat([rank_in_class(codes), rank_in_class(task.codes[order])])
        turns = torch.argsort(ranks, stable=True)
        kept = turns[keep_best(offered[turns], self.budget)].sort().values
        old, new = kept[kept < codes.numel()], order[kept[kept >= codes.numel()] - codes.numel()]
        two_hops = spmm(task.field.mix.matrix, task.field.inputs)
        match, outputs = self._matching(task, two_hops, task.codes[new])
        steps, lr, widths = self.condense_steps, self.condense_lr, (self.hidden, outputs)
        fresh = condense(match, two_hops[new], steps, lr, widths, task.initial)
        x, codes = torch.cat([x[old], fresh]), torch.cat([codes[old], task.codes[new]])
        return SyntheticMemory(x, codes, old, edge_free(x))

    def _matching(self, task: Task, two_hops: Tensor, synthetic: Tensor) -> tuple[Match, int]:
        """How far the session's synthetic nodes, of these classes [k], are off; width of W_2."""
        return embeddings_apart(task.field, task.codes, synthetic), self.hidden

    def _check_memory(self, memory: Tensors, weights: Tensors, classes: int) -> None:
        super()._check_memory(memory, weights, classes)
        shape = (memory["codes"].numel(), weights["weight1"].size(0))
        check_tensor("x", memory["x"], shape, torch.float32)


def embeddings_apart(field: Field, codes: Tensor, synthetic: Tensor) -> Match:
    """Squared distance of class means of embeddings, of real nodes and of synthetic ones."""
    members = one_hot(codes), one_hot(synthetic, int(codes.max()) + 1)
    counts, present = (found.sum(0) for found in members)
    share = (counts * (present > 0)).to(torch.float32) / codes.numel()
    # what each node adds to the mean of its class
    mean, own = ((found.to(torch.float32) / found.sum(0).clamp(min=1)).T for found in members)

    def loss(x: Tensor, weight1: Tensor, weight2: Tensor) -> Tensor:
        with torch.no_grad():
            real = spmm(field.mix.matrix, (field.inputs @ weight1).relu_()) @ weight2
            target = mean @ normalize(real)
        apart = own @ normalize(torch.relu(x @ weight1) @ weight2) - target
        return share @ apart.square().sum(1)

    return loss


def condense(
    match: Match, start: Tensor, steps: int, lr: float, widths: tuple[int, int], draw: Generator
) -> Tensor:
    """Synthetic nodes [k, d] that match under `steps` encoders, freshly drawn on the CPU."""
    if start.numel() == 0:
        return start
    x = nn.Parameter(start.clone())
    first = lr * float(start.square().mean().sqrt())
    optimiser = torch.optim.Adam([x], lr=first, fused=True)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = first * (1 - step / steps)
        weight1 = glorot(x.size(1), widths[0], draw).to(x.device)
        weight2 = glorot(*widths, draw).to(x.device)
        optimiser.zero_grad(set_to_none=True)
        match(x, weight1, weight2).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return x.detach()


def edge_free(x: Tensor) -> Field:
    """The receptive field of isolated nodes: themselves."""
    nodes = torch.arange(x.size(0), device=x.device)
    return receptive_field(normalised_adjacency(nodes.new_empty(2, 0), x.size(0)), x, nodes)


@dataclass(kw_only=True, eq=False, repr=False)
class DeLoMe(CaT):
    """Debiased lossless memory replay: synthetic nodes with the gradients of real ones.

    A session's nodes V are condensed, as in `CaT`, to nodes X̃ whose classes have the gradients of
    real ones under random networks:

        min_X̃ E_W Σ_c r_c ‖ ∇_W mean_{v ∈ V_c} CE_v − ∇_W mean_{i ∈ X̃_c} CE_i ‖²,
        logits = ReLU(Â² X W_1) W_2 and ReLU(X̃ W_1) W_2,   r_c = |X̃_c| / max_c |X̃_c|.

    The GCN learns from the session's own nodes and from the memory of earlier ones, with logits
    that are adjusted for how often a class is seen in the two together:

        L = CE(z_t + τ log π) + Σ_{s < t} CE(z_{M_s} + τ log π),   π_c = m_c / Σ m,

    a mean over the session's nodes and one over the nodes of each earlier session; m_c counts the
    memory's nodes of an old class and the session's of a new one (`balanced` changes nothing).

    Niu et al., "Graph Continual Learning with Debiased Lossless Memory Replay", ECAI 2024.

    `temperature` is τ, 1 in the authors' code, 0 for no adjustment; the rest is as in `CaT`.
    """

    temperature: float = 1.0
    condense_lr: float = 0.01
    _limits: ClassVar = {"temperature": 0}
    _per_node: ClassVar = ("codes", "sessions")

    def _prepare(self, task: Task) -> SyntheticMemory:
        memory = super()._prepare(task)
        old = memory.kept.numel()
        seen = torch.cat([memory.codes[:old], task.codes])
        # a class that the budget left with nothing counts for one node
        counts = torch.bincount(seen, minlength=task.arrival.size).clamp(min=1)
        adjustment = self.temperature * (counts / counts.sum()).log().to(torch.float32)
        sessions = torch.full_like(memory.codes, task.before.sessions)
        sessions[:old] = task.memory.get("sessions", sessions)[memory.kept]
        _, which, sizes = torch.unique(sessions[:old], return_inverse=True, return_counts=True)
        field, shares = edge_free(memory.x[:old]), 1 / sizes[which]
        more = {"field": field, "sessions": sessions, "shares": shares, "adjustment": adjustment}
        return memory._replace(**more)

    def _loss(self, task: Task, prepared: SyntheticMemory) -> Tensor:
        loss = cross_entropy(task.gcn(task.field, task.masks) + prepared.adjustment, task.codes)
        if not prepared.shares.numel():
            return loss
        logits = task.gcn(prepared.field, task.masks) + prepared.adjustment
        codes = prepared.codes[: prepared.shares.numel()]
        return loss + cross_entropy(logits, codes, reduction="none") @ prepared.shares

    def _remember(self, task: Task, prepared: SyntheticMemory) -> Tensors:
        return super()._remember(task, prepared) | {"sessions": prepared.sessions}

    def _matching(self, task: Task, two_hops: Tensor, synthetic: Tensor) -> tuple[Match, int]:
        classes = task.arrival.size
        return gradients_apart(two_hops, task.codes, synthetic, classes), classes


def gradients_apart(real: Tensor, codes: Tensor, synthetic: Tensor, classes: int) -> Match:
    """Squared distance between the gradients of real nodes [n, d] and of synthetic ones."""
    counts = torch.bincount(synthetic, minlength=classes)
    shares = (counts / counts.max().clamp(min=1)).to(torch.float32)

    def distance(x: Tensor, weight1: Tensor, weight2: Tensor) -> Tensor:
        weights = [weight.requires_grad_() for weight in (weight1, weight2)]
        apart = []
        for code in counts.nonzero().squeeze(1).tolist():
            found = []
            for inputs, labels, keep in ((real, codes, False), (x, synthetic, True)):
                rows = labels == code
                loss = cross_entropy(torch.relu(inputs[rows] @ weight1) @ weight2, labels[rows])
                found.append(torch.autograd.grad(loss, weights, create_graph=keep))
            squares = [(one - other).square().sum() for one, other in zip(*found, strict=True)]
            apart.append(shares[code] * torch.stack(squares).sum())
        return torch.stack(apart).sum()

    return distance
