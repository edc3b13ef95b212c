"""Every method over one graph's stream, in one process, so that their times can be compared.

    python benchmarks/compare.py GRAPH RECORDS [--methods a,b] [--seeds 42,43,44] [--device cpu]
                                 [--step 1] [--set budget=12]

Seeds are the outer loop: whatever else the machine is doing falls on all methods alike.
"""

import argparse
from pathlib import Path

from algnn import methods
from algnn.bench.plan import Plan, carry_out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("graph")
    parser.add_argument("records", type=Path)
    parser.add_argument("--methods", default=",".join(methods.METHODS))
    parser.add_argument("--seeds", default="42,43,44")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    names = options.methods.split(",")
    first = True
    for seed in map(int, options.seeds.split(",")):
        for name in names:
            known = methods.find(name).defaults
            fitting = [pair for pair in options.set if pair.split("=")[0] in known]
            changes = methods.parse(name, fitting)
            plan = Plan(
                options.graph, name, [seed], changes, step=options.step, device=options.device
            )
            if first:
                # the first use of a device costs what no method should pay for
                carry_out(plan, options.records)
                first = False
            outcome = carry_out(plan, options.records)[0].outcome
            print(
                f"{options.graph:14} {seed} {name:12} AP {outcome.ap:6.2f} AF {outcome.af:6.2f}"
                f" base {outcome.matrix[0, 0]:6.2f} learn {sum(outcome.learn_seconds):7.2f} s"
                f" predict {sum(outcome.predict_seconds):6.2f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
