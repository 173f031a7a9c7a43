"""Every loader of the kit reads its miniature source, through the real loading code."""

import bz2
import json
import random
import zipfile
from collections import Counter

import datasets
import hub
import pytest
from country import Country
from fake_llm import FakeLLM, field, told
from sizes import sizes

from factkit.data import corpus, pages, sources
from factkit.data.bm25 import answer_in_chunks
from factkit.data.entries import split_entry
from factkit.data.entry_index import EntryIndex
from factkit.data.examples import DataError
from factkit.data.splits import split_by_entity
from factkit.facts.source import HELD_OUT
from factkit.papers.rar import requests as rar_requests
from factkit.papers.reason import requests as reason_requests
from factkit.papers.rlfh import requests as rlfh_requests
from factkit.papers.truthrl import data as truthrl_data
from factkit.papers.veri import benchmarks as claims
from factkit.papers.veri import data as veri_data
from factkit.papers.veri import fetch
from factkit.run import params
from factkit.verify.llm import Reply

pytestmark = pytest.mark.slow

LM_EVAL = [  # of lm-eval 0.4.13's task files: set, config, split, columns
    ("Idavidrein/gpqa", "gpqa_main", "train", "Question,Correct Answer"),
    ("google/IFEval", None, "train", "key,prompt,instruction_id_list,kwargs"),
    ("SaylorTwift/bbh", "web_of_lies", "test", "input,target"),
    ("openai/gsm8k", "main", "train", "question,answer"),
    ("EleutherAI/hendrycks_math", "precalculus", "test", "problem,solution"),
    ("math-ai/aime25", None, "test", "problem,answer"),
    ("evalplus/humanevalplus", None, "test", "prompt,entry_point,test"),
    ("evalplus/mbppplus", None, "test", "prompt,test_list"),
    ("wentingzhao/WildHallucinations", None, "train", "entity,info,category"),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    hub.write(folder)
    return folder


@pytest.fixture
def folder(written, monkeypatch):
    monkeypatch.setenv("FACTKIT_HUB", str(written))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", written / ".datasets")
    return written


def load(paper, **values):
    changed = sizes(paper, "h100_full") | values
    return params.load(paper, "h100_full", changed)


def people_of(folder):
    """What LongFact's authors have, as a user's folder."""
    raw = folder / "raw.githubusercontent.com" / hub.prompt_sets.AUTHORS
    return raw / hub.prompt_sets.COMMIT


# ---- short questions


QUESTIONS = "crag nq_open hotpotqa musique popqa gpqa squad_v2".split()


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_set_is_read_from_the_hub(folder, name):
    for all_splits in (False, True):
        examples, problems = sources.load(name, all_splits=all_splits)
        assert len(examples) >= 8 and not problems


def test_crag_has_every_kind_of_question_both_splits_and_its_pages(folder):
    file = next((folder / "github.com").rglob("crag_*.bz2"))
    with bz2.open(file) as lines:
        rows = [json.loads(line) for line in lines]
    assert {row["split"] for row in rows} == {0, 1}
    examples, _ = sources.load("crag", all_splits=True)
    assert len({e.relation for e in examples}) == 8
    by_question = pages.crag_pages()
    for example in examples:
        own = by_question[example.id]
        assert 1 <= len(own) <= 5
        assert not any("<" in page.text or "visits" in page.text for page in own)
        if example.relation in ("simple", "simple_w_condition", "multi-hop"):
            texts = [corpus.Chunk("", "", page.text, 0) for page in own]
            assert answer_in_chunks(example.answers, texts), example


def test_truthrl_has_questions_for_its_splits_and_a_comparison_to_test(folder):
    p = load("truthrl")
    examples, _ = truthrl_data.open_questions(p).load()
    wanted = {n: getattr(p, f"{n}_questions") for n in ("train", "dev", "test")}
    sets = split_by_entity(examples, wanted, p.split_seed)
    assert {name: len(rows) for name, rows in sets.items()} == wanted
    assert any(e.relation == "comparison" for e in sets["test"])
    for name in p.eval_sets.split():
        rows, _ = sources.load(name, limit=p.test_questions)
        assert len(rows) == p.test_questions


def test_the_wikipedia_of_2018_has_a_passage_for_every_page(folder):
    passages = list(pages.Passages())
    titles = [page.title for page in Country().pages]
    assert [passage.text.split("\n")[0] for passage in passages] == titles


# ---- prompts for long answers


@pytest.mark.parametrize("name", ("longfact", "longfact_objects", "biography"))
def test_what_is_not_on_the_hub_is_read_from_its_authors_files(folder, name):
    path = people_of(folder)
    path /= hub.prompt_sets.ENTITIES if name == "biography" else "longfact"
    examples, problems = sources.load(name, str(path))
    assert len(examples) >= 8 and not problems


def test_wildchat_has_chats_to_keep_and_of_each_kind_to_drop(folder):
    examples, problems = sources.load("wildchat", limit=1_000)
    assert len(examples) == hub.prompt_sets.CHATS
    assert problems == Counter(
        {
            "not English": 1,
            "toxic or redacted": 2,
            "prompt too short": 1,
            "reply too short": 1,
            "duplicate question": 1,
        }
    )


@pytest.mark.assets
def test_rar_has_requests_for_its_splits(folder, monkeypatch):
    p = load("rar")
    judge = FakeLLM(lambda prompt: told(reason="It names a book.", label="yes"))
    monkeypatch.setattr(rar_requests, "judge_llm", lambda *_: judge)
    sets, held_out, _ = rar_requests.request_sets(p)
    assert len(sets["train"]) == p.train_requests
    # PopQA's questions are asked with leave to abstain and without
    own = {
        name: [e for e in rows if "set" not in e.meta] for name, rows in sets.items()
    }
    short = rar_requests.SHORT_DEV
    assert len(own["dev"]) == p.dev_requests * (1 + 2 * short)
    assert len(own["test"]) == p.test_requests * 3
    assert len(held_out) == HELD_OUT
    assert not any("set" in e.meta for e in sets["train"] + sets["dev"])
    public = [e for e in sets["test"] if "set" in e.meta]
    by_set = Counter(e.meta["set"] for e in public)
    assert by_set == dict.fromkeys(p.test_sets.split(), p.test_requests)
    _the_public_sets_have_evidence_and_letters(p, public, monkeypatch)


def _the_public_sets_have_evidence_and_letters(p, public, monkeypatch):
    searched = {}

    def gather(p, examples, own):
        searched.update(own)
        return {}, Counter()

    monkeypatch.setattr(rar_requests, "gather", gather)
    open_ones = [e for e in public if e.meta["kind"] == "open"]
    evidence, fates = rar_requests.evidence_of(p, open_ones)
    wild = [e for e in public if e.meta["set"] == "wild_hallucinations"]
    assert fates == {"with pages of their own": len(wild)} and len(evidence) == len(
        wild
    )
    assert all(e.entity in evidence[e.id][0].text for e in wild)
    people = [e for e in open_ones if e.meta["set"] == "biography"]
    assert searched == {e.id: e.question for e in people}
    for e in (e for e in public if e.meta["set"] == "gpqa"):
        (letter,) = e.answers
        work = e.question.split(" towns is ")[1].split(" set in?")[0]
        told = e.question.split(f"({letter}) ")[1].split("\n")[0]
        assert told == next(w.setting.name for w in Country().works if w.name == work)


def writer(prompt):
    """Writes a new prompt that no other is near to, and finds every prompt factual."""
    if "Fact-seeking:" not in prompt:
        return told(reason="It names a town.", label="yes")
    shown = str(field(prompt, "Fact-seeking")) + str(field(prompt, "Everyday"))
    words = random.Random(shown).sample(shown.split(), 12)
    new = "".join(c for c in " ".join(words) if c.isalpha() or c == " ")
    return Reply(f"<new_prompt>What of {new}?</new_prompt>")


def reason_sets(monkeypatch, **values):
    p = load("reason", **values)
    monkeypatch.setattr(reason_requests, "judge_llm", lambda *_: FakeLLM(writer))
    return p, reason_requests.reason_sets(p)[0]


def test_learning_to_reason_takes_all_its_sets_from_the_hub(folder, monkeypatch):
    p, sets = reason_sets(monkeypatch)
    for name in ("sft", "train", "dev"):
        assert len(sets[name]) == getattr(p, f"{name}_requests")
    by_set = Counter(e.meta["set"] for e in sets["test"])
    assert by_set == dict.fromkeys(p.eval_sets.split(), p.test_requests)


def test_rlfh_takes_all_its_sets_from_the_hub(folder):
    p = load("rlfh")
    sets, dropped = rlfh_requests.rlfh_sets(p)
    assert len(sets["train"]) == p.train_requests
    by_set = Counter(e.meta["set"] for e in sets["test"])
    assert by_set == {"hotpotqa": p.test_requests, "squad_v2": 8, "biography": 12}
    assert dropped["squad_v2: unanswerable"] == 8


def test_rlfh_finds_its_pages_in_wikipedia_of_april_2023(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))
    path = folder / "factscore/enwiki-20230401.db"
    p = load("rlfh", wikipedia_path=str(path))
    sets, _ = rlfh_requests.rlfh_sets(p)
    asked = [*sets["train"][:8], *(e for e in sets["test"] if not any(e.answers))]
    own = {e.id: e.question for e in asked}
    pages, fates = rlfh_requests.rlfh_evidence(p, asked, own)
    assert fates["kept"] == len(asked) == len(pages)
    texts = {page.title: page.text for page in Country().pages}
    about = 0
    for e in asked:
        found = [d for d in pages[e.id] if not d.id.endswith("#answer")]
        assert 1 <= len(found) <= p.pages and len(found) < len(pages[e.id]) + 1
        for document in found:
            assert document.text.split() == texts[document.title].split()
        about += e.entity in {d.title for d in found}
    assert about == len(asked)
    wikipedia = rlfh_requests.Wikipedia(path)
    assert len(list(wikipedia)) == 2 * len(texts)
    with pytest.raises(KeyError):
        wikipedia["No page"]
    (tmp_path / "other.db").write_text("no database", "utf-8")
    with pytest.raises(DataError, match="no SQLite file with documents"):
        list(rlfh_requests.Wikipedia(tmp_path / "other.db"))
    with pytest.raises(DataError, match="wikipedia_path: no file .* by hand"):
        rlfh_requests.Wikipedia(tmp_path / "none.db")


# ---- claims


def _every_gold_id_is_there(folder, examples):
    entries = [e for n in claims.CORPORA for e in claims.entries(n, folder / n)]
    known = {piece.id for entry in entries for piece in split_entry(entry)}
    assert known.issuperset(i for e in examples for i in e.evidence)


def test_veri_has_claims_for_its_splits_with_their_evidence(written):
    p = load("veri", claims_path=str(written / hub.VERI))
    sets, entries, dropped = veri_data.claim_sets(p)
    assert len(sets["train"]) == p.train_claims and len(sets["dev"]) == p.dev_claims
    assert any(e.meta.get("hops") == 2 for part in sets.values() for e in part)
    by_set = Counter(e.meta["set"] for e in sets["test"])
    assert by_set == dict.fromkeys(p.eval_sets.split(), p.test_claims)
    assert dropped["duplicate id"] == hub.claim_sets.REPEATED
    _every_gold_id_is_there(written / hub.VERI, sets["test"])
    told = [*sets["train"], *sets["dev"]]
    offline = veri_data.offline_evidence(
        told,
        entries,
        lambda queries, k, sets: [[] for _ in queries],
        p.context_entries,
    )
    assert all(len(offline[e.id]) == len(e.evidence) for e in told)


def test_every_claim_set_gets_an_index_of_its_corpus(tmp_path, capsys):
    hub.claim_sets.write(tmp_path, Country())
    with zipfile.ZipFile(tmp_path / "wiki-pages.zip", "w") as packed:
        for page in sorted((tmp_path / "wiki-pages").iterdir()):
            packed.write(page, f"wiki-pages/{page.name}")
    p = load("veri", claims_path=str(tmp_path))
    folder = fetch.fetch(p)  # all files are there
    assert fetch.fetch(p) == folder == tmp_path / "indexes"
    for name, source in claims.CORPUS_OF.items():
        assert EntryIndex(folder / name).manifest["name"] == source
    assert (folder / "hover").resolve() == (folder / "exfever").resolve()
    assert "CC BY-SA 4.0 (Wikipedia)" in capsys.readouterr().out
