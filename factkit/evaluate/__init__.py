"""Metrics and the evaluations that produce them."""
