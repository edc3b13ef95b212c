"""Evaluation: a learner over a stream, its figures, records and pictures."""
