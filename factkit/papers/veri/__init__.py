"""Veri-R1 (paper 5): notebooks 50 to 54."""
