"""Turning raw questions into training data: probing, pairs, filters."""
