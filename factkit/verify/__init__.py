"""Verification of responses: by rules, by LLM judges, and claim by claim."""
