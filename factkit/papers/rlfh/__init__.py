"""RLFH (paper 4): notebooks 40 to 44."""
