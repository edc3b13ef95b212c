"""Differentially private models."""
