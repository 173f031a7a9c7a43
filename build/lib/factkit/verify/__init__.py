"""Deciding whether what a response says is true."""
