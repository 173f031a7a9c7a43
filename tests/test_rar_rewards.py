"""Binary RAR's rewards: by hand, by properties, by a judge, and under TRL."""

import pytest
from fake_llm import FakeLLM, field, told
from hypothesis import given
from hypothesis import strategies as st

from factkit import prompts
from factkit.data.corpus import Document
from factkit.data.evidence import EvidenceCache
from factkit.data.examples import DataError
from factkit.facts.world import facts as w
from factkit.facts.world import texts as world_text
from factkit.papers.rar import rewards as rar
from factkit.verify.claims import Support
from factkit.verify.llm import Reply
from factkit.verify.replies import read_reply

YES, NO, OPEN = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE

# supports → VeriScore, binary VeriScore, conflict-only VeriScore
CLAIMS = [
    ([YES, YES, YES, YES], 1.0, 1.0, 1.0),
    ([YES, YES, YES, NO], 0.75, 1.0, 0.75),
    ([YES, NO], 0.5, 1.0, 0.5),
    ([YES, OPEN, OPEN], 1 / 3, 0.0, 1.0),
    ([OPEN, OPEN, NO, OPEN], 0.0, 0.0, 0.75),
    ([NO], 0.0, 0.0, 0.0),
    ([], 0.0, 0.0, 1.0),
]


def test_rewards_by_hand():
    for claims, score, binary, conflict in CLAIMS:
        assert rar.veriscore(claims) == pytest.approx(score)
        assert rar.binary_veriscore(claims) == binary
        assert rar.conflict_only_veriscore(claims) == pytest.approx(conflict)
    assert (rar.binary_rar(1.0), rar.binary_rar(0.0)) == (1.0, 0.0)
    assert [rar.rating_rar(r) for r in (0, 3, 10)] == [0.0, 0.3, 1.0]
    assert [rar.lm_judge(r) for r in (0, 7.5, 10)] == [0.0, 0.75, 1.0]
    assert rar.veriscore_plus_judge([YES, YES, YES, NO], 6) == pytest.approx(1.35)


@given(st.lists(st.sampled_from(list(Support)), min_size=1, max_size=20))
def test_true_padding_dilutes_an_error(claims):
    before, after = [NO, *claims], [NO, *claims, YES]
    assert rar.veriscore(after) > rar.veriscore(before)
    assert rar.conflict_only_veriscore(after) > rar.conflict_only_veriscore(before)


# The engine's verdicts


class Told:
    """Says what it was told, by response, and keeps what it was asked."""

    PIECES = {
        "no_contradiction": {"good": 1.0, "bad": 0.0},
        "rating": {"good": 9.0, "bad": 2.0},
        "quality": {"good": 8.0, "bad": 5.0},
        "supports": {"good": [YES, YES, OPEN], "bad": [YES, NO, NO], "half": [None]},
    }

    def __init__(self):
        self.asked = []

    def values(self, pieces, ids, prompts, responses):
        pieces = list(pieces)
        self.asked += [(piece, ids, prompts, responses) for piece in pieces]
        return {p: [self.PIECES[p].get(r) for r in responses] for p in pieces}


ROWS = (["a", "b", "c", "d"], ["who?"] * 4, ["good", "bad", "", "half"])


def test_the_engine_is_asked_for_what_the_arms_need_once_each():
    for arm in rar.REWARDS:
        engine = Told()
        rar.rewards_by_arm([arm], engine, *ROWS)
        assert engine.asked == [(piece, *ROWS) for piece in rar.REWARDS[arm][1]]
    engine = Told()
    rewards = rar.rewards_by_arm(rar.REWARDS, engine, *ROWS)
    asked = [piece for piece, *_ in engine.asked]
    assert sorted(asked) == ["no_contradiction", "quality", "rating", "supports"]
    assert {arm: values[0] for arm, values in rewards.items()} == pytest.approx(
        {
            "lm_judge": 0.8,
            "veriscore": 2 / 3,
            "binary_rar": 1.0,
            "rating_rar": 0.9,
            "binary_veriscore": 1.0,
            "conflict_only_veriscore": 1.0,
            "veriscore_plus_judge": 2 / 3 + 0.8,
        }
    )
    # what the judge failed on has no reward under any arm
    assert {values[2] for values in rewards.values()} == {None}
    assert rewards["veriscore_plus_judge"][3] is None


def score(reward, texts, tokens=3, **more):
    n = len(texts)
    rows = {
        "prompts": ["formatted"] * n,
        "completions": texts,
        "completion_ids": [[1] * tokens] * n,
        "id": ["q"] * n,
        "question": ["who?"] * n,
    }
    return reward(**rows | more)


def test_no_reward_looks_at_reasoning():
    """Neither in training, nor where drawn responses are scored."""
    for form, answer in {
        "<think>bad</think> {}": "good",
        "bad</think>{}": "good",
        "<think>{}": "",  # cut off, so that it gives no answer
    }.items():
        engine, text = Told(), form.format("good")
        for arm in rar.REWARDS:
            rar.rewards_by_arm([arm], engine, ["q"], ["who?"], [text])
        chat = [[{"role": "assistant", "content": text}]]
        score(rar.trl_reward("binary_rar", engine, 4, 0.0), chat)
        assert {shown for _, _, _, (shown,) in engine.asked} == {answer}


def test_a_response_that_does_not_stop_costs_the_penalty():
    """Down to 0, so that in reasoning that never ends there is no gain."""
    long, short = [1] * 4, [1] * 3
    texts, lengths = ["good"] * 2 + ["bad", ""], [long, short, long, long]
    for penalty, rewards in (
        (0.5, [0.5, 1.0, 0.0, None]),
        (2.0, [0.0, 1.0, 0.0, None]),
    ):
        reward = rar.trl_reward("binary_rar", Told(), 4, penalty)
        assert score(reward, texts, completion_ids=lengths) == rewards


def test_the_adapter_logs_a_batch():
    logged = {}
    reward = rar.trl_reward("veriscore", Told(), 4, 0.0)
    score(reward, ["good", "bad", "bad", ""], log_metric=logged.__setitem__)
    assert logged == {
        "response_words": 3 / 4,
        "judge_failures": 1 / 4,
        "total_claims": 3.0,
        "supported_claims": pytest.approx(4 / 3),
        "contradicted_claims": pytest.approx(4 / 3),
    }
    logged.clear()
    reward = rar.trl_reward("binary_rar", Told(), 4, 0.0)  # an arm without claims
    score(reward, ["good", "bad"], log_metric=logged.__setitem__)
    assert logged == {"response_words": 1.0, "judge_failures": 0.0}


# A judge of whole responses

PAGES = {
    "p": [
        Document("d1", "t", "iron iron iron is grey .", "test"),
        Document("d2", "t", "gold gold is a metal as iron is .", "test"),
        Document("d3", "t", "the moon is far away .", "test"),
    ],
    "q": [Document("d4", "t", "the fox sleeps .", "test")],
}
IRON, GOLD, MOON, FOX = (d.text for docs in PAGES.values() for d in docs)
JUDGES = {  # method → its template, the scores that it may give
    "no_contradiction": ("judge_contradiction", range(2)),
    "rating": ("rate_factuality", range(11)),
    "quality": ("judge_quality", range(11)),
}


def judged_by(rule, **settings):
    """An engine whose judge answers by a rule, and that judge."""
    llm = FakeLLM(rule)
    tokenizer = world_text.build_tokenizer(w.build_world(people=5))
    cache = EvidenceCache(PAGES, tokenizer, 32)
    unused = dict.fromkeys(("extract", "verify", "pieces", "search"))
    return rar.EvidenceEngine(**unused, llm=llm, whole=cache, **settings), llm


def says_its_number(prompt):
    return told(REASONING="because", SCORE=int(field(prompt, "Response")))


def test_each_judge_takes_one_request_a_response_and_gives_the_score_of_its_reply():
    for method, (template, scores) in JUDGES.items():
        engine, llm = judged_by(says_its_number)
        n = len(scores)
        rows = ["p"] * n, ["Q?"] * n, list(map(str, scores))
        assert engine.values([method], *rows) == {method: list(map(float, scores))}
        assert llm.calls == {template: n}
        schema = llm.requests[0].schema["properties"]
        assert list(schema) == ["REASONING", "SCORE"]
        assert schema["SCORE"]["enum"] == list(scores)
        assert {r.sampling.temperature for r in llm.requests} == {0}


def test_evidence_is_the_prompt_s_own_with_or_without_its_words_and_best_first():
    for method in ("no_contradiction", "rating"):
        for settings, expected in (
            ({}, [[GOLD, IRON], [FOX]]),
            ({"whole_chunks": 1}, [[GOLD], [FOX]]),
            ({"with_prompt": False}, [[GOLD], [FOX]]),
        ):
            engine, llm = judged_by(lambda prompt: told(SCORE=1), **settings)
            rows = ["p", "q"], ["iron ?", "fox ?"], ["gold metal", "sleeps"]
            engine.values([method], *rows)
            texts = [r.messages[0]["content"] for r in llm.requests]
            assert [field(text, "Search results") for text in texts] == expected
    with pytest.raises(DataError, match="no evidence for prompt 'other'"):
        engine.values(["rating"], ["other"], ["a"], ["b"])
    assert engine.values(["quality"], ["other"], ["iron ?"], ["b"])["quality"] == [1.0]
    assert IRON not in llm.requests[-1].messages[0]["content"]


def test_a_judge_that_failed_is_none_and_no_score():
    for reply in (Reply(None, "timeout"), Reply("fine"), told(SCORE=11)):
        engine, _ = judged_by(lambda prompt, reply=reply: reply)
        values = engine.values(JUDGES, ["p"], ["Q?"], ["R."])
        assert values == dict.fromkeys(JUDGES, [None])


def test_the_examples_of_a_template_are_replies_that_can_be_read():
    for template, _ in JUDGES.values():
        lines = prompts.template(template).splitlines()
        replies = [line for line in lines if line.startswith("{")]
        values = [read_reply(Reply(reply), rar.Rating).SCORE for reply in replies]
        assert len(set(values)) == 2
