"""Graphs and streams; knows nothing of learning."""
