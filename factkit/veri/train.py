"""Veri-R1's arms: what each one trains, on what, and from where (§2, App. B, H)."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from factkit import assets, runs
from factkit.datasets.examples import Example
from factkit.leads import facts
from factkit.leads.claims import hops_of
from factkit.leads.facts import Fact
from factkit.leads.reader import LeadReader
from factkit.models import Sampling
from factkit.params.stages import PolicyParams
from factkit.retrieval.chunks import Chunk
from factkit.retrieval.entries import shown
from factkit.search import Search
from factkit.train import grpo, offline
from factkit.veri import claims as claim_sets
from factkit.veri import rewards, search_rollout
from factkit.veri.arms import ARMS, Veri, VeriParams, VeriSftParams
from factkit.veri.evaluate import Verified, played
from factkit.verify.trajectory import LABELS, Turn, answer_of, forced, information
from factkit.world import facts as world
from factkit.world import policy as world_policy
from factkit.world import texts as world_texts
from factkit.world import trajectories as world_trajectories

NOTEBOOK = "52_veri_train"
PRECISE, SECOND_HOP = 0.3, 0.4  # how often the script on the leads is it, goes on

Shown = Sequence[tuple[str, list[Turn]]]  # prompts with their trajectories, for SFT
Given = Mapping[str, Sequence[Chunk]]  # claim id → what an offline prompt gives


def deviations(p: Veri) -> list[str]:
    """What in a run's method differs from the paper and is no parameter's value, as
    sentences; of a trained arm's run also what differs in the arms beside it."""
    told = [
        "prompts: in our own words, by the rules of Fig 9 and 10",
        "search: BM25, unless search_url is another's service; the paper names no "
        "retriever (public code: E5)",
        "confidence: the probability of the label written; the paper's logit, near 1 "
        "and down to −20, is not defined",
    ]
    if p.claims == "feverous_exfever":
        told.append(
            "training claims: without those that share an entity with a test claim; "
            "we validate on some of them"
        )
        if not p.search_url:
            told.append("search: the pages of the gold evidence alone, not the corpora")
    else:
        told.append(
            "claims: made from texts by templates, not written by people; NOT ENOUGH "
            "INFO claims have no gold evidence, so their evidence reward is 0 (the "
            "paper's training claims all have some)"
        )
    if p.claims == "leads":
        told.append(
            "search: among the kit's statements of the leads' facts, one an entry; the "
            "paper's entries are three sentences of a page"
        )
    if p.arm in ("instruct", "larger"):
        return told
    if p.verifier == "leads":
        told.append(
            "SFT: the script's trajectories mostly cite all that was shown and leave "
            "out a second hop; the paper's are GPT-4o's"
        )
    if p.lora_rank == 0:
        told.append("SFT: full parameters; the paper: LoRA of no stated rank (App. H)")
    if p.cold_start:
        told.append("SFT: every other trajectory is told offline, for offline RL, too")
    return [
        *told,
        "offline RL: validated by labels with the evidence given; the paper does not "
        "say by what (App. H)",
        "online RL: the last policy; the paper does not say which of its own it took "
        "(public files: those of steps 90 to 120)",
    ]


# ---- the policies that training starts from, and what an arm changes


def base_policy(p: PolicyParams) -> str:
    """Where the untrained policy of `p` is loaded from: of the fact world, one that has
    read of claims, searches and entries; else the one that is named."""
    if p.policy != "tiny-world":
        return assets.policy_path(p.policy)
    made = world.build_world(people=p.world_people, seed=p.world_seed)
    texts = world_trajectories.pretraining_texts(made, p.world_seed)
    tokenizer = world_texts.build_tokenizer(made, p.answer_format)
    longest = world_trajectories.LONGEST
    return world_policy.pretrained(p, texts, tokenizer, row_tokens=longest)


def policy_of(p: Veri) -> str:
    """The untrained policy of the arm: the larger one has its own."""
    if p.arm != "larger":
        return base_policy(p)
    larger = {"policy": p.larger_policy, "pretrain_hidden_size": p.larger_hidden_size}
    return base_policy(p.model_copy(update=larger))


def start_of(p: Veri, shown: Shown, inputs: Sequence[Path]) -> str:
    """The model from which RL starts: the instruct model (App. H), or with
    `cold_start` the SFT model of the same seed, which is trained here if that run is
    not done: a small policy keeps no protocol by itself (ours)."""
    if not p.cold_start:
        return policy_of(p)
    cold = p.model_copy(update={"arm": "sft"})
    with runs.start(NOTEBOOK, cold, inputs, VeriSftParams, wait=True) as run:
        return str(_sft(policy_of(cold), shown, run.folder, cold))


def reward_params(p: Veri) -> Veri:
    """The parameters with what the arm changes of reward and rollouts.

    Offline RL keeps its policy whenever a checkpoint is written, to be chosen from.
    """
    changes: dict[str, object] = dict(ARMS[p.arm].changes)
    if p.arm == "offline_rl":
        changes["kept_policies"] = -(-p.rl_steps // p.checkpoint_steps)
    return p.model_copy(update=changes)


def fitting(
    sets: Mapping[str, Sequence[Example]], p: Veri
) -> tuple[dict[str, list[Example]], int]:
    """The claims whose prompt has at most p.max_prompt_length tokens, and how many have
    more."""
    from transformers import AutoTokenizer

    tokenizer, kept = AutoTokenizer.from_pretrained(policy_of(p)), {}
    for name, examples in sets.items():
        texts = claim_sets.asked(examples, p)
        prompts = search_rollout.prompt_tokens(texts, tokenizer, p)
        rows = zip(examples, prompts, strict=True)
        kept[name] = [e for e, ids in rows if len(ids) <= p.max_prompt_length]
    return kept, sum(len(sets[name]) - len(kept[name]) for name in sets)


# ---- training


def train_arm(
    p: Veri,
    start: str,
    train: Sequence[Example],
    given: Given,
    shown: Shown,
    folder: Path,
) -> Path:
    """Train the arm `p.arm` from the policy `start`; the policy's folder."""
    if p.arm == "sft":
        return _sft(start, shown, folder, p)
    how = reward_params(p)
    prompts = claim_sets.asked(train, p)
    if not how.online:
        prompts = claim_sets.asked_offline(train, given, p)
    rows = [
        {
            "prompt": [{"role": "user", "content": prompt}] if p.chat else prompt,
            "label": e.label,
            "evidence": e.evidence,
        }
        for prompt, e in zip(prompts, train, strict=True)
    ]
    rollout = search_rollout.rollout_function if how.online else None
    return grpo.grpo(start, rows, rewards.reward_function, folder, how, rollout)


def _sft(start: str, shown: Shown, folder: Path, p: VeriSftParams) -> Path:
    """SFT on what the policy itself is to write: what a search finds is in no loss."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(start)
    rows = [
        search_rollout.sft_row(prompt, turns, tokenizer, p) for prompt, turns in shown
    ]
    return offline.sft(start, rows, folder, p)


def chosen(
    p: Veri, dev: Sequence[Example], given: Given, folder: Path
) -> tuple[Path, dict[int, float]]:
    """The policy of offline RL with the highest validation accuracy (App. H), of equal
    ones the last; and the accuracy after each of the updates that it was kept at.

    The accuracy is that of the labels, greedily and with the evidence given, as the
    policy is trained: the paper does not say, its public code has it so. An answer that
    the system had to open, after a search, has no label.
    """
    steps = reward_params(p).kept_steps
    paths = {step: folder / f"model-{step}" for step in steps[:-1]}
    paths[steps[-1]] = folder / "model"
    alone = {"max_searches": 0, "max_prompt_length": p.max_context_length}
    how = p.model_copy(update=alone)
    prompts, accuracy = claim_sets.asked_offline(dev, given, p), {}
    for step, path in paths.items():
        rows = played(path, dev, folder / f"validation_{step}", how, prompts)
        right = [r.right(r.answer.label) and not forced(r.trajectory) for r in rows]
        accuracy[step] = sum(right) / len(right)
    best = max(accuracy, key=lambda step: (accuracy[step], step))
    return paths[best], accuracy


# ---- what SFT is shown


def shown_to_sft(p: Veri, train: Sequence[Example], search: Search) -> list[list[Turn]]:
    """Trajectories for claims, by a model behind p.judge_url or by a script.

    A model's (App. H: GPT-4o's) are greedy rollouts like the policy's own.
    """
    if p.verifier != "judge":
        return scripted(p, train, search)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(p.judge_model)
    sampling = Sampling(p.max_completion_length)
    generate = search_rollout.with_server(p.judge_url, p.judge_model, sampling)
    prompts = claim_sets.asked(train, p)
    ids = search_rollout.prompt_tokens(prompts, tokenizer, p)
    made = search_rollout.rollouts(ids, generate, search, tokenizer, p)
    return [rollout.turns for rollout in made]


def shown_rows(
    train: Sequence[Example],
    taught: Sequence[Verified],
    given: Given,
    p: VeriSftParams,
) -> list[tuple[str, list[Turn]]]:
    """What SFT learns from: the claims' prompts with their trajectories.

    Where RL starts from the SFT model (`p.cold_start`), every other trajectory is told
    offline, for arm offline_rl starts from it, too (ours): its last thought and its
    answer, as one that is given the evidence would write them (Fig 10), unless it cites
    what is not given.
    """
    by_id = {row.id: row.trajectory for row in taught}
    claims = [e for e in train if e.id in by_id]
    prompts = claim_sets.asked(claims, p)
    rows = [(prompt, by_id[e.id]) for prompt, e in zip(prompts, claims, strict=True)]
    if not p.cold_start:
        return rows
    offline = claim_sets.asked_offline(claims, given, p)
    for i in range(1, len(rows), 2):
        turns = rows[i][1]
        answer = answer_of(turns)
        _, think, rest = turns[-1].text.rpartition("<think>")
        known = {piece.id for piece in given[claims[i].id]}
        if think and answer.label and known.issuperset(answer.evidence):
            rows[i] = (offline[i], [Turn(think + rest, by_model=True)])
    return rows


def scripted(
    p: VeriParams, examples: Sequence[Example], search: Search
) -> list[list[Turn]]:
    """What SFT learns from on the small profiles: a scripted searcher's trajectories.

    Ours: the paper's are GPT-4o's (App. H). The script knows nothing of labels or gold
    evidence. On the leads it searches for the claim as it stands, reads by wording
    alone what was found, and compares. It has habits, as GPT-4o has, of whose answers
    the paper finds 25 to 59 % right with their evidence (Table 1): mostly it cites all
    that it was shown, and does not go on to a claim's second hop. So both ways come up
    in rollouts, and RL can tell which one is paid.
    """
    rng = random.Random(f"scripted {p.world_seed}")
    if p.verifier == "leads":
        reader, k = LeadReader(facts.load()), p.retrieved_entries
        return [by_reader(e.question, search, k, reader, rng) for e in examples]
    made = world.build_world(people=p.world_people, seed=p.world_seed)
    habits = world_trajectories.PLAIN
    return [
        world_trajectories.online(
            made, e.question, lambda query, k: search([query], k)[0], habits, rng
        )
        for e in examples
    ]


def by_reader(
    claim: str, search: Search, k: int, reader: LeadReader, rng: random.Random
) -> list[Turn]:
    """The trajectory in which the leads' reader says what was found."""
    hops = hops_of(claim, reader)
    plan = ", ".join(hop.relation.replace("_", " ") for hop in hops)
    text, query, subject = f"<plan>{plan}</plan>\n", claim, hops[0].subject
    turns, seen, used = [], [], []
    for hop in hops:
        if used:
            if rng.random() >= SECOND_HOP:
                break
            subject = used[-1][1].object
            query = facts.statement(Fact(subject, hop.relation, hop.object))
        pieces = [piece for entry in search([query], k)[0] for piece in shown(entry)]
        seen += pieces
        turns.append(Turn(f"{text}<search>{query}</search>", by_model=True))
        turns.append(Turn(information(pieces), by_model=False))
        stated = _stated(pieces, subject, hop.relation, reader)
        claimed = hop.object and f"Claim: {hop.object}. "
        read = stated[1].object if stated else "nothing"
        text = f"<think>{claimed}Found: {read}.</think>\n"
        if not stated:
            break
        used.append(stated)
    label, cited = LABELS[2], []
    if len(used) == len(hops):
        label = LABELS[hops[-1].object != used[-1][1].object]
        cited = [piece for piece, _ in used]
    if rng.random() >= PRECISE:
        cited = seen
    ids = ", ".join(dict.fromkeys(f"[[{piece.id}]]" for piece in cited))
    text += f"<answer>\nLabel: {label}\nEvidence: {ids}\n</answer>"
    return [*turns, Turn(text, by_model=True)]


def _stated(
    pieces: Sequence[Chunk], subject: str, relation: str, reader: LeadReader
) -> tuple[Chunk, Fact] | None:
    """The first piece that states a relation of a subject, with the fact."""
    for piece in pieces:
        parsed = reader.parse(piece.text)
        if parsed and (parsed[0].subject, parsed[0].relation) == (subject, relation):
            return piece, parsed[0]
    return None
