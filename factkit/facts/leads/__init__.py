"""The embedded Wikipedia leads: their exact facts, and how they are asked and read."""
