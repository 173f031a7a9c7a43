"""Whether an answer is preferred to the reference policy's: R_rel of Learning to Reason
for Factuality (§3.1.1), where no model is good enough to judge.

By a stand-in that looks at what an answer is about and not at whether it is true, as
the paper's judge is told to (`verify.exact`). An answer wins if it is relevant at all,
and at least as relevant as the reference policy's answer to the same request: a rule
has ties where a judge has none. `whole_response.preferences` is the paper's own way, by
a judge.
"""

from collections.abc import Callable, Mapping, Sequence

from factkit.datasets.examples import DataError

# (ids, prompts, answers) → 1.0 preferred, 0.0 not, None: the judge failed
Preference = Callable[[Sequence[str], Sequence[str], Sequence[str]], list[float | None]]
# (ids, prompts, answers) → how relevant, higher is better
Relevance = Callable[[Sequence[str], Sequence[str], Sequence[str]], list[float | None]]


def at_least_as(relevance: Relevance, references: Mapping[str, str]) -> Preference:
    """Wins at no less relevance than the reference answer (by the prompt's id), but
    never at 0. What it returns raises DataError on a prompt without one."""

    def preferred(
        ids: Sequence[str], prompts: Sequence[str], answers: Sequence[str]
    ) -> list[float | None]:
        if lacking := [i for i in ids if i not in references]:
            raise DataError(
                f"prompt {lacking[0]!r}: no answer of the reference policy to compare "
                "with; run 30_reason_data again"
            )
        theirs = [references[i] for i in ids]
        return [
            None if None in (a, b) else float(a > 0 and a >= b)
            for a, b in side_by_side(relevance, ids, prompts, answers, theirs)
        ]

    return preferred


def side_by_side(
    relevance: Relevance,
    ids: Sequence[str],
    prompts: Sequence[str],
    ours: Sequence[str],
    theirs: Sequence[str],
) -> list[tuple[float | None, float | None]]:
    """How relevant two answers to each request are.

    All are asked about at once: an encoder's last digits depend on the batch that a
    text is in, and equal answers are to tie.
    """
    found = relevance([*ids, *ids], [*prompts, *prompts], [*ours, *theirs])
    return list(zip(found[: len(ids)], found[len(ids) :], strict=True))
