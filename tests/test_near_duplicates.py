"""The inverted index finds what comparing with every text finds."""

import random

from factkit.data.near_duplicates import ShingleIndex, shingles


def test_the_index_finds_the_first_text_of_the_highest_jaccard_similarity():
    rng = random.Random(0)
    texts = [" ".join(rng.choices("abc", k=rng.randint(1, 12))) for _ in range(200)]
    index = ShingleIndex()
    for i, text in enumerate(texts[:150]):
        index.add(text, str(i))
    for text in texts[150:]:
        runs = shingles(text)
        similarities = [
            len(runs & shingles(other)) / len(runs | shingles(other))
            for other in texts[:150]
        ]
        best = max(similarities)
        label = str(similarities.index(best)) if best else ""
        assert index.nearest(text) == (label, best)
