"""Chunks, the search among them by words or embeddings, and evidence for prompts."""
