"""The two longest common parts of RLFH's token mapping as plain dynamic programmes."""


def last_in_sentence(statement: str, sentence: str) -> int | None:
    """Where the first-ending longest common subsequence ends in the sentence."""
    longest = [0] * (len(sentence) + 1)  # of the statement so far and sentence[:j]
    for a in statement:
        above = longest
        longest = [0]
        for j, b in enumerate(sentence):
            same = above[j] + 1 if a == b else 0
            longest.append(max(same, above[j + 1], longest[j]))
    return longest.index(longest[-1]) - 1 if longest[-1] else None


def start_in_response(sentence, response, after=0) -> tuple[int, int, int] | None:
    """(start in sentence, start in response, length) of the longest common substring:
    of several the first from `after` on, else the first."""
    ending, found = [0] * (len(response) + 1), []
    for i, a in enumerate(sentence, 1):
        above, ending = ending, [0]
        for j, b in enumerate(response, 1):
            ending.append(above[j - 1] + 1 if a == b else 0)
            if n := ending[j]:
                found.append((-n, j - n < after, j - n, i - n))
    if not found:
        return None
    n, _, j, i = min(found)
    return i, j, -n
