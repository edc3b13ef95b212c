"""Differentially private sums."""

from algnn.analytic.privacy.model import PrivateALGNN

__all__ = ["PrivateALGNN"]
