"""Binary RAR (paper 2): notebooks 20 to 24."""
