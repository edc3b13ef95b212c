"""A year in an hour: everything that can happen to a model, at random and all at once.

    make stress                                 # ten minutes, or STRESS=3600 seconds
    python benchmarks/stress.py --seconds 600

Two lives run side by side. A *learner in memory* is shared by threads: one learns, forgets,
relabels, merges and sends commands twice, others predict meanwhile. A *model in a file* is changed
by a process that is killed at random moments and started again, and by commands of the shell, some
of which are killed as well; meanwhile others read the file, and flip bits in copies of it. Each
process is a fork of one that has imported everything, so that there can be many.

Whoever changes a model writes down what was acknowledged. After a kill, the last request is simply
sent again. In the end both models must equal, to 1e-9, one that learned what was acknowledged and
nothing else; every answer that a reader got must be, to the last bit, that of a state between two
changes; and every flipped bit must have been noticed. The figures are printed as JSON; the exit
code is 1 if anything was lost or wrong.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from hashlib import sha256
from multiprocessing.connection import wait
from pathlib import Path

import torch

import algnn
from algnn import cli
from algnn.bench.environment import machine, now, versions
from algnn.errors import CheckpointError, InputError

BASE, WORKERS, SHELLS = range(40), range(40, 140), range(140, 240)
CLASSES = 10
BOUND = 1e-9
FORKS = multiprocessing.get_context("forkserver")
ONE_AT_A_TIME = threading.Lock()  # who starts a process asks all others for their exit codes
PRELOADED = ["algnn.models", "algnn.labels", "algnn.cli.living", "algnn.graph.datasets"]


def small_digits():
    """A part of the digits; few nodes, so that there are many steps."""
    return algnn.load("digits").subgraph(torch.arange(400))


def choose(ledger, pool, chance, ops):
    """A random request over some nodes: what, which nodes, and labels."""
    free, held = [n for n in pool if n not in ledger], sorted(ledger)
    # few left: only what needs no others; few known: only what brings more
    op = chance.choice([op for op in ops if len(free) >= 4 or op in ("forget", "relabel")])
    if op in ("forget", "relabel") and len(held) < 20:
        op = "learn"
    nodes = chance.sample(held if op in ("forget", "relabel") else free, chance.randint(1, 4))
    return op, nodes, [chance.randrange(CLASSES) for _ in nodes]


def note(ledger, op, nodes, labels):
    """What is known after a request: the label of each learned node."""
    for node, label in zip(nodes, labels, strict=True):
        if op == "forget":
            del ledger[node]
        else:
            ledger[node] = label


def carry_out(model, graph, ledger, op, nodes, labels):
    """A request, in such a way that it may be sent again."""
    try:
        if op == "learn":
            model.partial_fit(graph, nodes, labels, repeat="ignore")
        elif op == "forget":
            model.forget(graph, nodes, [ledger[node] for node in nodes])
        elif op == "relabel":
            model.relabel(graph, nodes, None, labels)
        else:
            model.merge(model.blank().partial_fit(graph, nodes, labels))
    except InputError as error:
        # it was done before: forgotten nodes are unknown, and merged ones are shared
        if not any(words in str(error) for words in ("were learned:", "not learned", "both learn")):
            raise


def error_of(model, graph, ledger):
    """How far a model is from one that learned what was acknowledged; infinite if it knows else."""
    expected = model.blank().partial_fit(graph, list(ledger), list(ledger.values()))
    same = model.classes_.tolist() == expected.classes_.tolist()
    if not same or not torch.equal(model.statistics_.n, expected.statistics_.n):
        return float("inf")
    return float((model.weights_ - expected.weights_).norm() / expected.weights_.norm())


# -- the process that is killed -------------------------------------------------------------------


def replayed(journal):
    """The ledger that a journal leaves, and the request at its end that was not acknowledged."""
    ledger, pending, count = {}, None, 0
    for line in journal.read_text().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut off by a kill, before anything was done about it
        if entry == "done":
            note(ledger, *pending)
            pending, count = None, count + 1
        else:
            pending = entry
    return ledger, pending, count


def work(folder, *given):
    """`change_file`; what it may raise goes into a file, since its stderr is nobody's."""
    try:
        change_file(folder, *given)
    except Exception:
        (folder / "raised").write_text(traceback.format_exc())
        raise


def change_file(folder, seed, finish, ready):
    """Change the model in the file for ever, or only finish what was begun."""
    torch.set_num_threads(1)
    graph, chance = small_digits(), random.Random(seed)
    path, journal = folder / "model.safetensors", folder / "journal"
    ledger, pending, _ = replayed(journal)

    def write(entry):
        with journal.open("a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    if not journal.read_text().endswith("\n"):
        with journal.open("a") as file:
            file.write("\n")  # a line that was cut off ends here
    ready.set()
    while True:
        if pending is None:
            if finish:
                return
            pending = choose(ledger, WORKERS, chance, ("learn", "forget", "relabel", "merge"))
            write(pending)
        with algnn.open_model(path) as model:
            carry_out(model, graph, ledger, *pending)
        write("done")
        note(ledger, *pending)
        pending = None


def command(arguments, complaint):
    """A command of the shell; what it says on stderr goes into a file."""
    torch.set_num_threads(1)
    with (
        complaint.open("w") as file,
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stderr(file),
        contextlib.redirect_stdout(nowhere),
    ):
        code = cli.main([str(argument) for argument in arguments])
    sys.exit(code)


def started(target, *args):
    """A process that runs a function."""
    process = FORKS.Process(target=target, args=args)
    with ONE_AT_A_TIME:
        process.start()
    return process


def ended(process, patience=None):
    """The exit code of a process, which is killed if it takes too long."""
    if not wait([process.sentinel], patience):
        process.kill()
        wait([process.sentinel])
    with ONE_AT_A_TIME:
        process.join()
        return process.exitcode


# -- all that happens at once ---------------------------------------------------------------------


class Stress:
    """Two lives of a model, and what came of them."""

    def __init__(self, folder, seconds, seed):
        self.folder, self.seed = folder, seed
        self.path, self.journal = folder / "model.safetensors", folder / "journal"
        self.graph = small_digits()
        self.end = time.monotonic() + seconds
        self.counts, self.wrong = Counter(), []
        labels = [int(label) for label in self.graph.y[list(BASE)]]
        self.memory = algnn.ALGNN(device="cpu").fit(self.graph, list(BASE), labels)
        self.memory.save(self.path)
        algnn.save_npz(self.graph, folder / "graph.npz")
        self.known = dict(zip(BASE, labels, strict=True))
        self.shells = {}
        entries = [["learn", list(BASE), labels], "done"]
        self.journal.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        self.states, self.seen = set(), set()

    def running(self):
        """Whether there is time left, and nothing has gone wrong."""
        return time.monotonic() < self.end and not self.wrong

    def run(self):
        """Let all of it happen, and return the figures."""
        actors = (self.writer, *[self.reader] * 3, self.supervisor, self.shell, self.loader,
                  self.flipper)  # fmt: skip
        threads = [threading.Thread(target=self.guarded, args=pair) for pair in enumerate(actors)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not self.wrong:
            self.compare()
        return self.figures()

    def guarded(self, place, actor):
        """Whatever is raised in a thread is wrong."""
        try:
            actor(random.Random(f"{self.seed} {place}"))
        except Exception:
            self.wrong.append(f"{actor.__name__}: {traceback.format_exc()}")

    def answer(self):
        """A reader's question: which classes, how probable, how new, of 50 nodes."""
        probabilities = self.memory.predict_proba(self.graph, range(300, 350))
        return sha256(probabilities.tobytes() + repr(probabilities.shape).encode()).hexdigest()

    def writer(self, chance):
        """Changes the learner in memory; what every state answers is kept."""
        self.states.add(self.answer())
        while self.running():
            request = choose(self.known, range(40, 240), chance, ("learn", "forget", "relabel",
                             "merge"))  # fmt: skip
            carry_out(self.memory, self.graph, self.known, *request)
            # asked by the only writer: what is answered now is the answer of this state
            self.states.add(self.answer())
            op, nodes, labels = request
            if op == "learn" and chance.random() < 0.3:
                self.refused(nodes, labels)
            note(self.known, *request)
            self.counts["changes in memory"] += 1

    def refused(self, nodes, labels):
        """The same again, and another label: neither may pass."""
        for given in (labels, [(label + 1) % CLASSES for label in labels]):
            try:
                self.memory.partial_fit(self.graph, nodes, given)
            except InputError:
                self.counts["requests refused"] += 1
            else:
                self.wrong.append(f"learned again: {nodes}")

    def reader(self, chance):
        """Asks the learner in memory."""
        while self.running():
            self.seen.add(self.answer())
            self.counts["answers from memory"] += 1
            time.sleep(0.01)

    def supervisor(self, chance):
        """Starts the process that works on the file, and kills it."""
        while self.running():
            ready = FORKS.Event()
            process = started(work, self.folder, chance.random(), False, ready)
            ready.wait(60)
            code = ended(process, chance.uniform(0, 3))
            if code != -signal.SIGKILL:
                self.wrong.append(f"a process ended by itself: {code} {self.raised()}")
            self.counts["processes killed"] += 1

    def raised(self):
        """What the process on the file has raised."""
        found = self.folder / "raised"
        return found.read_text() if found.exists() else ""

    def shell(self, chance):
        """Commands on the same file, some of them killed and sent again."""
        table = self.folder / "labels.csv"
        while self.running():
            request = choose(self.shells, SHELLS, chance, ("learn", "forget", "relabel"))
            op, nodes, labels = request
            given = [self.shells[node] for node in nodes] if op == "forget" else labels
            rows = [f"{node},{label}" for node, label in zip(nodes, given, strict=True)]
            table.write_text("\n".join(["node,label", *rows]) + "\n")
            arguments = [op, self.path, self.folder / "graph.npz", table]
            arguments += ["--again"] if op == "learn" else []
            complaint = self.folder / "complaint"
            for patience in (chance.uniform(0, 2) if chance.random() < 0.3 else None, None):
                code = ended(started(command, arguments, complaint), patience)
                if code != -signal.SIGKILL:
                    break
                self.counts["commands killed"] += 1
            said = complaint.read_text()
            if code and not (op == "forget" and "learned" in said):  # it was done before
                self.wrong.append(f"{op}: {said}")
            note(self.shells, *request)
            self.counts["changes of the file, by commands"] += 1

    def loader(self, chance):
        """Reads the file while it is being replaced."""
        while self.running():
            algnn.ALGNN.load(self.path).predict(self.graph, [300])
            self.counts["loads of the file"] += 1
            time.sleep(0.2)

    def flipper(self, chance):
        """Flips bits in copies."""
        copy, damaged = self.folder / "copy.safetensors", self.folder / "damaged.safetensors"
        while self.running():
            whole = self.path.read_bytes()
            copy.write_bytes(whole)
            content = bytearray(whole)
            # as often in the header as behind it, though it is the smaller part
            ends = 8 + int.from_bytes(whole[:8], "little"), len(whole)
            for _ in range(chance.choice((1, 1, 2, 8))):
                content[chance.randrange(chance.choice(ends))] ^= 1 << chance.randrange(8)
            damaged.write_bytes(content)
            self.counts["copies with flipped bits"] += 1
            try:
                found = algnn.ALGNN.load(damaged)
            except CheckpointError:
                self.counts["copies with flipped bits, refused"] += 1
            else:
                # a letter of a key that nobody reads: nothing else passes
                if not torch.equal(found.weights_, algnn.ALGNN.load(copy).weights_):
                    self.wrong.append("a flipped bit changed the weights")
            time.sleep(0.2)

    def compare(self):
        """When all is still: finish what was begun, and look."""
        ready = FORKS.Event()  # kept: it is gone with its last reference here
        if code := ended(started(work, self.folder, 0, True, ready), 60):
            self.wrong.append(f"what was begun could not be finished: {code} {self.raised()}")
        known, _, count = replayed(self.journal)
        self.counts["changes of the file, by the process"] = count
        with algnn.open_model(self.path) as model:
            pass
        self.errors = {
            "memory": error_of(self.memory, self.graph, self.known),
            "file": error_of(model, self.graph, {**known, **self.shells}),
        }
        self.wrong += [
            f"{name} is {error} away" for name, error in self.errors.items() if error > BOUND
        ]
        strange = len(self.seen - self.states)
        if strange:
            self.wrong.append(f"{strange} answers belong to no state")
        left = [file.name for file in self.folder.glob(".*")]
        if left:
            self.wrong.append(f"left behind: {left}")

    def figures(self):
        """What was done, and what went wrong."""
        counts = dict(sorted(self.counts.items()))
        errors = getattr(self, "errors", {})
        states = len(self.states)
        found = {"wrong": self.wrong, **counts, "distinct states": states, "error": errors}
        where = {"machine": machine(), "versions": versions(algnn.ALGNN), "date": now()}
        return {**found, "command": " ".join(["python", *sys.argv]), "seed": self.seed, **where}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    FORKS.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        figures = Stress(Path(folder), options.seconds, options.seed).run()
    print(json.dumps(figures, indent=1))
    return 1 if figures["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
