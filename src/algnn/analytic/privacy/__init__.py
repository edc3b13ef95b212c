"""Differentially private sums: the learner in `model`, its budget in `accountant`."""
