"""Precision, detail and relevance of a policy that reasons (Learning to Reason §4.1).

Claims are those of the answer; reasoning is not held against evidence.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factkit import world
from factkit.datasets.examples import Example
from factkit.evaluate import long_form, win_rate
from factkit.verify import strategies
from factkit.verify.preference import side_by_side
from factkit.verify.replies import Verdict
from factkit.verify.response import final_answer, parts
from factkit.verify.verifier import judge_llm

if TYPE_CHECKING:
    from factkit.params import ReasonParams
    from factkit.verify.engine import ReasonEngine

# (ids, prompts, ours, theirs) → 1.0 ours preferred, 0.5 a tie, 0.0 theirs; None: failed
Compare = Callable[
    [Sequence[str], Sequence[str], Sequence[str], Sequence[str]], list[float | None]
]


def compare(p: "ReasonParams", engine: "ReasonEngine") -> Compare:
    """Who decides win rates: a judge in both orders (§4.1: AlpacaEval's way), or, where
    there is none, the stand-in for relevance."""
    if p.verifier == "judge":
        llm = judge_llm(p, p.judge_model, p.judge_url)

        def judged(ids, prompts, ours, theirs) -> list[float | None]:
            return [v.value for v in win_rate.compare(llm, prompts, ours, theirs)]

        return judged

    def by_relevance(ids, prompts, ours, theirs) -> list[float | None]:
        sides = [[final_answer(t, False) for t in texts] for texts in (ours, theirs)]
        return [
            None if None in (a, b) else (a > b) + 0.5 * (a == b)
            for a, b in side_by_side(engine.relevance, ids, prompts, *sides)
        ]

    return by_relevance


def measure(
    examples: Sequence[Example],
    said: Mapping[str, str],
    base: Mapping[str, str],
    engine: "ReasonEngine",
    decide: Compare,
    p: "ReasonParams",
    path: Path,
) -> dict[str, float]:
    """Metrics of the responses `said` (request id → text); their claims go to `path`.

    Those of `long_form.scores` (factual_precision F/T, correct_claims F, …), win_rate
    over the base policy's responses, malformed (the share not of the form), and the
    words of reasoning and answer; the first and win_rate also for each evaluation set,
    as `<set>_factual_precision` … Raises ValueError above 5 % of failed extractions,
    verifications or comparisons; the shares are in `…_failures`.
    """
    texts = [said[e.id] for e in examples]
    checked = long_form.evaluate(examples, texts, *engine.reader, path, p.test_chunks)
    wins = decide(
        [e.id for e in examples],
        [e.question for e in examples],
        texts,
        [base[e.id] for e in examples],
    )
    failed = win_rate.judged([Verdict(w, "") for w in wins])[1]
    failures = long_form.failures(checked) | {"comparison_failures": failed}
    metrics = _scores(checked, wins) | failures | _form(texts)
    for name in dict.fromkeys(e.meta["set"] for e in examples):
        rows = [i for i, e in enumerate(examples) if e.meta["set"] == name]
        of = _scores([checked[i] for i in rows], [wins[i] for i in rows])
        metrics |= {f"{name}_{k}": v for k, v in of.items()}
    return metrics


def _scores(
    checked: Sequence[long_form.Checked], wins: Sequence[float | None]
) -> dict[str, float]:
    """`long_form.scores`, and win_rate; a comparison that failed is left out."""
    known = [w for w in wins if w is not None]
    share = {"win_rate": sum(known) / len(known)} if known else {}
    return long_form.scores(checked) | share


def _form(texts: Sequence[str]) -> dict[str, float]:
    """The share of malformed responses, and the lengths of the others' parts in words,
    means (Fig 2)."""
    split = [found for found in map(parts, texts) if found]
    lengths = {
        "reasoning_words": [len(of.reasoning.split()) for of in split],
        "answer_words": [len(of.answer.split()) for of in split],
    }
    means = {name: sum(n) / len(n) for name, n in lengths.items() if n}
    return {"malformed": 1 - len(split) / len(texts)} | means


def strategies_used(
    examples: Sequence[Example], said: Mapping[str, str], p: "ReasonParams"
) -> dict[str, float]:
    """The share of well-formed responses with each strategy of reasoning (Fig 4), the
    most frequent first: by an annotator where there is a judge, else by rules."""
    split = [(e.question, parts(said[e.id])) for e in examples]
    rows = [(question, of.reasoning, of.answer) for question, of in split if of]
    if p.verifier == "judge":
        llm = judge_llm(p, p.judge_model, p.judge_url)
        found = [of.value for of in strategies.annotate(llm, rows)]
        return strategies.shares([of and of.strategies for of in found])
    key = strategies.words
    if p.requests == "world":
        made = world.build_world(people=p.world_people, seed=p.world_seed)
        key = strategies.world_facts(made)
    return strategies.shares([strategies.tag(*of, key) for _, *of in rows])
