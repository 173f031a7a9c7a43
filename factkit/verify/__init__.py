"""Deciding what a response says: correct, abstaining or wrong; later, claim by claim."""
