"""The verification engine on a real model behind `vllm serve`.

A model of 135M verifies badly, and often reasons past its tokens, which gives None;
that each reply has its form, or counts as failed, is what is tested.
"""

from functools import partial

import pytest
from transformers import AutoTokenizer

from factkit.answers.long_form import search_words
from factkit.data.corpus import load_leads
from factkit.data.evidence import EvidenceCache
from factkit.papers.rar.rewards import EvidenceEngine, rewards_by_arm
from factkit.verify import claims, llm
from factkit.verify.calls import run_all
from factkit.verify.response import split_sentences

N = 6  # responses


@pytest.fixture(scope="module")
def asked():
    """(ids, prompts, responses): first sentences of leads, the last one wrong."""
    leads = load_leads()[:N]
    texts = [lead.text.split(". ")[0] + "." for lead in leads[:-1]]
    ids = [lead.id for lead in leads]
    prompts = [f"Who or what is {lead.title}?" for lead in leads]
    return ids, prompts, [*texts, f"{leads[-1].title} is a brand of soap."]


@pytest.fixture(scope="module")
def judge(endpoint, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    patient = llm.Limits(timeout_s=900)  # a reasoning of 1,024 tokens, on two cores
    return llm.LLM(llm.Endpoint(endpoint, "judge"), cache, patient)


async def each_sentence(prompt, response):
    """Its sentences as the claims of a response."""
    return [claims.Claim(s, s) for s in split_sentences(response)]


@pytest.fixture(scope="module")
def engine(judge, smollm, asked):
    """Of each prompt its own lead and two others."""
    leads = load_leads()
    evidence = {i: [leads[n], *leads[50:52]] for n, i in enumerate(asked[0])}
    tokenizer = AutoTokenizer.from_pretrained(smollm)
    return EvidenceEngine(
        extract=each_sentence,
        verify=partial(claims.label_text, judge),
        llm=judge,
        whole=EvidenceCache(evidence, tokenizer, 256),
        pieces=EvidenceCache(evidence, tokenizer, 128),
        search=search_words(evidence),
        whole_chunks=2,
        claim_chunks=2,
    )


def test_a_real_model_s_extractions_have_their_form(judge, asked):
    """A list of claims, here an empty one of every sentence."""
    work = [claims.extract_claims(judge, *row) for row in zip(*asked[1:], strict=True)]
    found = run_all(work)
    assert len(found) == N
    assert None not in found


def test_each_claim_of_a_real_model_gets_a_label(engine, asked):
    found = engine.values(["supports"], *asked)["supports"]
    labels = [label for of in found if of is not None for label in of]
    assert len(found) == N
    assert labels and None not in labels  # a short reply, held to its schema


@pytest.mark.parametrize("arm", ["binary_rar", "rating_rar", "lm_judge", "veriscore"])
def test_each_response_is_scored_or_none(arm, engine, asked, judge):
    rewards = rewards_by_arm([arm], engine, *asked)[arm]
    scored = [r for r in rewards if r is not None]
    print(f"{arm}: {len(scored)} of {N} scored: {scored}")
    assert len(rewards) == N
    assert scored  # a reasoning longer than its tokens gives None
    assert all(0 <= r <= 1 for r in scored)
    calls = judge.totals.calls
    assert rewards_by_arm([arm], engine, *asked)[arm] == rewards
    assert judge.totals.calls == calls  # from the cache
