"""Binary RAR's rewards (§3.3, §6.2, Fig 4): pure functions first, then who judges, then
TRL's signature.

A reward is 0 at worst and 1 at best, veriscore_plus_judge 2. None stands for a judge
that failed, and what is computed of it is None too: never a score, never a default.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.answers import engine as engines
from factkit.answers.engine import ClaimEngine, ExactEngine
from factkit.answers.verifier import judge_llm
from factkit.data.evidence import EvidenceCache, query_of
from factkit.prompts import completion_texts
from factkit.verify import judge
from factkit.verify.judge import Form, free, whole
from factkit.verify.outcome import Support
from factkit.verify.response import answers

if TYPE_CHECKING:
    from factkit.papers.rar.arms import RAR, RarParams
    from factkit.verify.llm import LLM

Supports = Sequence[Support | None] | None  # of a response's claims; None: failed
# arm → what its reward is computed from, as the engine's methods are named
PIECES: Mapping[str, tuple[str, ...]] = {
    "lm_judge": ("quality",),
    "veriscore": ("supports",),
    "binary_rar": ("no_contradiction",),
    "rating_rar": ("rating",),
    "binary_veriscore": ("supports",),
    "conflict_only_veriscore": ("supports",),
    "veriscore_plus_judge": ("supports", "quality"),
}
ARMS = tuple(PIECES)


def binary_rar(no_contradiction: float | None) -> float | None:
    """1 if nothing in the response contradicts the evidence, else 0 (Eq. 5)."""
    return no_contradiction


def rating_rar(rating: float | None) -> float | None:
    """rating / 10 (§6.2): the verifier's factuality rating, in [0, 10]."""
    return None if rating is None else rating / 10


def lm_judge(rating: float | None) -> float | None:
    """rating / 10 (§4.3): a judge's rating of the quality, in [0, 10]."""
    return None if rating is None else rating / 10


def veriscore(supports: Supports) -> float | None:
    """supported claims / claims (§4.3); 0 without claims (ours: not stated)."""
    return _share(supports, Support.SUPPORTED)


def binary_veriscore(supports: Supports, threshold: float = 0.5) -> float | None:
    """1 if VeriScore ≥ threshold, else 0 (§6.2)."""
    score = veriscore(supports)
    return None if score is None else float(score >= threshold)


def conflict_only_veriscore(supports: Supports) -> float | None:
    """1 − contradicted claims / claims (§6.2); 1 without claims (ours: not stated)."""
    contradicted = _share(supports, Support.CONTRADICTED)
    return None if contradicted is None else 1.0 - contradicted


def veriscore_plus_judge(supports: Supports, rating: float | None) -> float | None:
    """VeriScore + rating / 10, in [0, 2] (§6.2; ours: equal weights, none stated)."""
    score, quality = veriscore(supports), lm_judge(rating)
    return None if score is None or quality is None else score + quality


def _share(supports: Supports, kind: Support) -> float | None:
    """The share of the claims that are of a kind, 0 without claims."""
    if supports is None or None in supports:
        return None
    return supports.count(kind) / max(len(supports), 1)


# Who judges a whole response: one call, in place of one for each sentence and claim.
# Nothing of a response is cut: what the judge does not read, it cannot judge.


class Check(Form):
    """The form of Binary RAR's Fig. 9: the score follows from the reasoning."""

    REASONING: free(1_800) = ""
    SCORE: whole(range(2))


class Rating(Form):
    """The form of Binary RAR's Fig. 10."""

    REASONING: free(1_800) = ""
    SCORE: whole(range(11))


@dataclass(frozen=True, kw_only=True)
class EvidenceEngine(ClaimEngine):
    """Binary RAR's: claims, and whole responses held against evidence by a judge.

    whole: the cache that a whole response is held against, of 512-token chunks in the
    paper; with_prompt: whether a response is searched for together with its prompt.
    """

    llm: "LLM"
    whole: EvidenceCache
    whole_chunks: int = 8
    with_prompt: bool = True

    def no_contradiction(self, ids, prompts, responses) -> list[float | None]:
        """1.0 if nothing contradicts the evidence, else 0.0 (Eq. 5, Fig. 9). Omissions
        are no errors, nor is what is unsupported but uncontradicted (§3.3)."""
        evidence = self._found(ids, prompts, responses)
        return self._judge("judge_contradiction", Check, prompts, responses, evidence)

    def rating(self, ids, prompts, responses) -> list[float | None]:
        """How surely the evidence shows no error, 0–10 (§6.2, Fig. 10)."""
        evidence = self._found(ids, prompts, responses)
        return self._judge("rate_factuality", Rating, prompts, responses, evidence)

    def quality(self, ids, prompts, responses) -> list[float | None]:
        """How helpful, relevant and detailed a response is, 0–10, without evidence
        (§4.3; the paper prints no prompt, this one is ours)."""
        return self._judge("judge_quality", Rating, prompts, responses)

    def _found(self, ids, prompts, responses) -> list[list[str]]:
        """The texts of C(x, y) for each response, best first."""
        texts = []
        for i, prompt, response in zip(ids, prompts, responses, strict=True):
            query = query_of(prompt, response, self.with_prompt)
            hits = self.whole.search(i, query, self.whole_chunks)
            texts.append([hit.chunk.text for hit in hits])
        return texts

    def _judge(
        self, template: str, form: type[Check | Rating], prompts, responses, evidence=()
    ) -> list[float | None]:
        """The scores that the judge's replies state."""
        rows = zip(prompts, responses, strict=True)
        fields = [{"question": x, "response": y} for x, y in rows]
        for row, texts in zip(fields, evidence, strict=False):
            row["evidence"] = texts
        scores = judge.ask(self.llm, template, fields, form, 1024)
        return [None if score is None else float(score.SCORE) for score in scores]


Engine = ExactEngine | EvidenceEngine


def engine_of(p: "RarParams") -> Engine:
    """The engine of `p`: the exact one, or an `EvidenceEngine`."""
    return engines.engine_of(p, _evidence_engine)


def _evidence_engine(p: "RarParams", fields, evidence, tokenizer) -> EvidenceEngine:
    return EvidenceEngine(
        **fields,
        llm=judge_llm(p, p.judge_model, p.judge_url),
        whole=EvidenceCache(evidence, tokenizer, p.whole_chunk_tokens),
        whole_chunks=p.whole_chunks,
        with_prompt=p.query_with_prompt,
    )


# What the engine says of a batch of responses: ids of prompts, prompts, responses


def judged(arms: Iterable[str], engine: "Engine", ids, prompts, responses) -> dict:
    """Piece → its values, one a response: all that the arms' rewards need, each once.

    Judged are the answers alone, without what stands in `<think>`.
    """
    needed = dict.fromkeys(piece for arm in arms for piece in PIECES[arm])
    rows = ids, prompts, answers(responses)
    return {piece: getattr(engine, piece)(*rows) for piece in needed}


def rewards_from(arm: str, pieces: Mapping[str, Sequence]) -> list[float | None]:
    """The arm's reward of each response, from what `judged` gave."""
    columns = [pieces[name] for name in PIECES[arm]]
    return [globals()[arm](*row) for row in zip(*columns, strict=True)]


def rewards_by_arm(
    arms: Sequence[str], engine: "Engine", ids, prompts, responses
) -> dict[str, list[float | None]]:
    """Arm → the reward of each response; each piece is asked for once."""
    pieces = judged(arms, engine, ids, prompts, responses)
    return {arm: rewards_from(arm, pieces) for arm in arms}


def rewards_of(arm: str, engine: "Engine", *rows: Sequence) -> list[float | None]:
    """The arm's reward of each response; the engine is asked for nothing else."""
    return rewards_by_arm([arm], engine, *rows)[arm]


# TRL


def reward_function(p: "RAR", folder: Path) -> Callable[..., list[float | None]]:
    """The reward of `p.arm` with TRL's `reward_funcs` signature, on the engine of p."""
    return trl_reward(p.arm, engine_of(p), p.max_completion_length, p.non_stop_penalty)


def trl_reward(
    arm: str, engine: "Engine", most_tokens: int, non_stop_penalty: float
) -> Callable[..., list[float | None]]:
    """The reward of an arm with TRL's `reward_funcs` signature.

    The rows need `id` and `question`. A response that fills all of `most_tokens` did
    not stop; it costs the penalty, down to 0 (A.5 has one without its size). A response
    that the judge failed on gets None, which TRL leaves out of the group's baseline.
    """

    def rar_reward(
        completions, completion_ids, id, question, log_metric=None, **_
    ) -> list[float | None]:
        texts = completion_texts(completions)
        pieces = judged([arm], engine, id, question, texts)
        rewards = rewards_from(arm, pieces)
        if log_metric:
            for name, values in logged(texts, pieces, rewards).items():
                log_metric(name, sum(values) / len(values))
        return [
            max(r - non_stop_penalty, 0.0) if r and len(ids) >= most_tokens else r
            for r, ids in zip(rewards, completion_ids, strict=True)
        ]

    rar_reward.__name__ = f"rar_{arm}"
    return rar_reward


def logged(
    responses: Sequence[str],
    pieces: Mapping[str, Sequence],
    rewards: Sequence[float | None],
) -> dict[str, list[float]]:
    """Metric → its values in a batch: failures, and words and claims of each answer."""
    values = {
        "response_words": [len(text.split()) for text in answers(responses)],
        "judge_failures": [reward is None for reward in rewards],
    }
    known = [s for s in pieces.get("supports", ()) if s is not None and None not in s]
    if known:
        values["total_claims"] = list(map(len, known))
        for kind in (Support.SUPPORTED, Support.CONTRADICTED):
            values[f"{kind.value}_claims"] = [s.count(kind) for s in known]
    return values
