"""Calibrated probabilities and the out-of-distribution score."""
