"""Each paper's parameters and data of a small fact world, for the tests of verl: as its
data notebook writes them, with responses to some prompts."""

import json
from dataclasses import asdict, dataclass

from transformers import LlamaConfig

from factkit.answers.sampling import Probe
from factkit.data.bm25 import CorpusIndex
from factkit.data.examples import write_examples, write_rows
from factkit.data.search import in_process
from factkit.facts.world import facts as worlds
from factkit.facts.world import texts as world_text
from factkit.papers.rar.requests import request_sets
from factkit.papers.reason.requests import reason_sets
from factkit.papers.rlfh.requests import rlfh_sets
from factkit.papers.truthrl import data as questions
from factkit.papers.veri import data as claim_data
from factkit.papers.veri.train import write_offline_evidence
from factkit.run import arms, params, runs
from factkit.run.params.stages import RlParams
from factkit.train.verl_adapter import make_job
from factkit.verify.outcome import Outcome

PAPERS = tuple(
    name
    for name, paper in arms.find_papers().items()
    if paper.find_module("verl_adapter")
)
REQUESTS = {"train_requests": 32, "dev_requests": 8, "test_requests": 8}
SMALL = {
    "truthrl": {"arm": "ternary_knowledge", "cold_start": False},
    "rar": {"arm": "veriscore", **REQUESTS},
    "reason": {"arm": "fact", "sft_requests": 8, **REQUESTS},
    "rlfh": {"max_completion_length": 24, "gamma": 0.9, "beta": 0.1, **REQUESTS},
    "veri": {"train_claims": 12, "dev_claims": 3, "test_claims": 6},
}


@dataclass
class Paper:
    """p: profile tiny's, of a policy without weights in a folder. examples: to train
    on; responses: to each two texts, or, of veri, what the policy says in its turns."""

    name: str
    p: RlParams
    world: worlds.World
    tokenizer: object
    examples: list
    responses: list

    @property
    def job(self):
        """What the paper hands to verl."""
        return make_job(self.p)


def made(name, folder):
    """A paper with its data, written below the folder."""
    policy = folder / "policy"
    paths = {"output_dir": str(folder / "outputs"), "policy": str(policy)}
    policy.mkdir(parents=True)
    for file in ("config.json", "model.safetensors"):
        (policy / file).touch()
    p = params.load(name, "tiny", {"world_people": 40} | paths | SMALL[name])
    world = worlds.build_world(
        people=p.world_people, seed=p.world_seed, exposure=p.world_exposure
    )
    tokenizer = world_text.build_tokenizer(world, p.answer_format)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        architectures=["LlamaForCausalLM"],
    )
    starts = [policy]
    if name == "reason":
        starts.append(runs.profile_folder(p) / "32_reason_train" / "sft-s0" / "model")
    for start in starts:
        tokenizer.save_pretrained(start)
        config.save_pretrained(start)
    examples, responses = WRITERS[name](p, world)
    return Paper(name, p, world, tokenizer, examples, responses)


def _untrue(fact):
    other = next(o for o in worlds.OBJECTS[fact.relation] if o != fact.object)
    return worlds.Fact(fact.subject, fact.relation, other)


def _truthrl(p, world):
    examples = questions.open_questions(p).load()[0][:8]
    folder = runs.run_folder("10_truthrl_data", p)
    write_examples(folder / "train.jsonl", examples)
    outcomes = [Outcome.CORRECT, Outcome.WRONG]  # each other question is known
    probes = [Probe(e.id, ["", ""], outcomes[i % 2 :]) for i, e in enumerate(examples)]
    lines = [json.dumps(asdict(probe)) + "\n" for probe in probes]
    (folder / "probe.jsonl").write_text("".join(lines), "utf-8")
    return examples, [[e.answers[0], "I don't know"] for e in examples]


def _requests(sets, tell):
    def write(p, world):
        splits = sets(p)[0]
        for split, examples in splits.items():
            path = runs.run_folder(p.data_notebook, p) / f"{split}.jsonl"
            write_examples(path, examples)
        known = [world.facts_of(e.entity) for e in splits["train"]]
        return splits["train"], [tell(facts) for facts in known]

    return write


def _told(facts):
    return [
        f"{worlds.statement(facts[0])} {worlds.statement(facts[1])}",
        f"{worlds.statement(facts[0])} {worlds.statement(_untrue(facts[1]))}",
    ]


def _reasoned(facts):
    answer = worlds.statement(facts[0])
    return [f"<think> {answer} </think> <answer> {answer} </answer>", answer]


def _veri(p, world):
    sets, entries, _ = claim_data.claim_sets(p)
    folder, train = runs.run_folder(p.data_notebook, p), sets["train"]
    for split, examples in sets.items():
        write_examples(folder / f"{split}.jsonl", examples)
    write_rows(folder / "entries.jsonl", map(asdict, entries))
    search = in_process(CorpusIndex(entries))
    given = claim_data.offline_evidence(train, entries, search, p.context_entries)
    write_offline_evidence(folder / "given.jsonl", given)
    told = claim_data.script_trajectories(p, train, search)
    responses = [
        [[turn.text for turn in turns if turn.by_model], _insatiable(e.question)]
        for e, turns in zip(train, told, strict=True)
    ]
    return train, responses


def _insatiable(claim):
    """Searches until it is made to answer."""
    return [f"<search> {claim} </search>"] * 4 + [" SUPPORT\nEvidence:\n</answer>"]


WRITERS = {
    "truthrl": _truthrl,
    "rar": _requests(request_sets, _told),
    "reason": _requests(reason_sets, _reasoned),
    "rlfh": _requests(rlfh_sets, _told),
    "veri": _veri,
}
