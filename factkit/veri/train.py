"""Veri-R1's arms: what each one trains, on what, and from where (§2, App. B, H)."""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from factkit import runs
from factkit.datasets.examples import Example
from factkit.models import Sampling
from factkit.retrieval.chunks import Chunk
from factkit.search import Search
from factkit.train import grpo, sft
from factkit.train.start import base_policy
from factkit.veri import claims as claim_sets
from factkit.veri import (
    rewards,
    search_play,
    search_rollout,
    search_sampling,
    trajectories,
)
from factkit.veri.arms import (
    ARMS,
    Veri,
    VeriSftParams,
)
from factkit.veri.evaluate import Verified, claim_rows, read_verified
from factkit.verify.trajectory import Turn, answer_of, forced

NOTEBOOK = "52_veri_train"


def deviations(p: Veri) -> list[str]:
    """What in a run's method differs from the paper and is no parameter's value, as
    sentences; of a trained arm's run also what differs in the arms beside it."""
    said = [
        "prompts: in our own words, by the rules of Fig 9 and 10",
        "search: BM25, unless search_url is another's service; the paper names no "
        "retriever (public code: E5)",
        "confidence: the probability of the label written; the paper's logit, near 1 "
        "and down to −20, is not defined",
    ]
    if p.claims == "feverous_exfever":
        said.append(
            "training claims: without those that share an entity with a test claim; "
            "we validate on some of them"
        )
        if not p.search_url:
            said.append("search: the pages of the gold evidence alone, not the corpora")
    else:
        said.append(
            "claims: made from texts by templates, not written by people; NOT ENOUGH "
            "INFO claims have no gold evidence, so their evidence reward is 0 (the "
            "paper's training claims all have some)"
        )
    if p.claims == "leads":
        said.append(
            "search: among the kit's statements of the leads' facts, one an entry; the "
            "paper's entries are three sentences of a page"
        )
    if p.arm in ("instruct", "larger"):
        return said
    if p.verifier == "leads":
        said.append(
            "SFT: the script's trajectories mostly cite all that was shown and leave "
            "out a second hop; the paper's are GPT-4o's"
        )
    if p.lora_rank == 0:
        said.append("SFT: full parameters; the paper: LoRA of no stated rank (App. H)")
    if p.cold_start:
        said.append("SFT: every other trajectory is told offline, for offline RL, too")
    return [
        *said,
        "offline RL: validated by labels with the evidence given; the paper does not "
        "say by what (App. H)",
        "online RL: the last policy; the paper does not say which of its own it took "
        "(public files: those of steps 90 to 120)",
    ]


def policy_of(p: Veri) -> str:
    """The untrained policy of the arm: the larger one has its own."""
    if p.arm != "larger":
        return base_policy(p)
    larger = {"policy": p.larger_policy, "pretrain_hidden_size": p.larger_hidden_size}
    return base_policy(p.model_copy(update=larger))


def fitting(
    sets: Mapping[str, Sequence[Example]], p: Veri
) -> tuple[dict[str, list[Example]], int]:
    """The claims whose prompt has at most p.max_prompt_length tokens, and how many have
    more."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(policy_of(p))
    kept = {}
    for name, examples in sets.items():
        texts = claim_sets.asked(examples, p)
        prompts = search_rollout.prompt_tokens(texts, tokenizer, p)
        rows = zip(examples, prompts, strict=True)
        kept[name] = [e for e, ids in rows if len(ids) <= p.max_prompt_length]
    lost = sum(map(len, sets.values())) - sum(map(len, kept.values()))
    return kept, lost


def reward_params(p: Veri) -> Veri:
    """The parameters with what the arm changes of reward and rollouts.

    Offline RL keeps its policy whenever a checkpoint is written, to be chosen from.
    """
    changes: dict[str, object] = dict(ARMS[p.arm].changes)
    if p.arm == "offline_rl":
        changes["kept_policies"] = -(-p.rl_steps // p.checkpoint_steps)
    return p.model_copy(update=changes)


def shown_to_sft(p: Veri, train: Sequence[Example], search: Search) -> list[list[Turn]]:
    """Trajectories for claims, by a model behind p.judge_url or by a script.

    A model's (App. H: GPT-4o's) are greedy rollouts like the policy's own.
    """
    if p.verifier != "judge":
        return trajectories.scripted(p, train, search)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(p.judge_model)
    sampling = Sampling(p.max_completion_length, one_line=False)
    generate = search_sampling.with_server(p.judge_url, p.judge_model, sampling)
    asked = claim_sets.asked(train, p)
    ids = search_rollout.encode_prompts(asked, tokenizer, p)
    made = search_rollout.rollouts(ids, generate, search, tokenizer, p)
    return [rollout.turns for rollout in made]


def shown_rows(
    train: Sequence[Example],
    taught: Sequence[Verified],
    given: Mapping[str, Sequence[Chunk]],
    p: VeriSftParams,
) -> list[tuple[str, list[Turn]]]:
    """What SFT learns from: the claims' prompts with their trajectories.

    Where RL starts from the SFT model (`p.cold_start`), every other trajectory is told
    offline, for arm offline_rl starts from it, too (ours).
    """
    by_id = {row.id: row.trajectory for row in taught}
    chosen = [e for e in train if e.id in by_id]
    prompts = claim_sets.asked(chosen, p)
    rows = [(q, by_id[e.id]) for q, e in zip(prompts, chosen, strict=True)]
    if p.cold_start:
        offline = claim_sets.asked_offline(chosen, given, p)
        for i in range(1, len(rows), 2):
            turns = _offline(rows[i][1], {c.id for c in given[chosen[i].id]})
            rows[i] = (offline[i], turns) if turns else rows[i]
    return rows


def _offline(turns: Sequence[Turn], given: Set[str]) -> list[Turn]:
    """The trajectory's last thought and its answer, as one that is given the evidence
    would write them (Fig 10); nothing if it cites what is not given."""
    _, think, rest = turns[-1].text.rpartition("<think>")
    whole = (
        think and answer_of(turns).label and given.issuperset(answer_of(turns).evidence)
    )
    return [Turn(think + rest, by_model=True)] if whole else []


def played(
    policy: str | Path, examples: Sequence[Example], folder: Path, p: Veri
) -> list[Verified]:
    """What the policy does with the claims, greedily and with the search (§3.2); kept
    in folder/verified.jsonl."""
    return _play(policy, examples, claim_sets.asked(examples, p), folder, p)


def _play(
    policy: str | Path,
    examples: Sequence[Example],
    prompts: Sequence[str],
    folder: Path,
    p: Veri,
) -> list[Verified]:
    rows = [
        row | {"prompt": prompt}
        for row, prompt in zip(claim_rows(examples), prompts, strict=True)
    ]
    alone: dict[str, object] = {"num_processes": 1}
    if p.rollouts != "transformers":  # an engine of its own, in a process of its own
        alone["rollouts"] = "vllm_colocate"
    p = p.model_copy(update=alone)
    return read_verified(search_play.play(str(policy), rows, folder, p))


def start_of(
    p: Veri, shown: Sequence[tuple[str, list[Turn]]], inputs: Sequence[Path]
) -> str:
    """The model from which RL starts: the instruct model (App. H), or with
    `cold_start` the SFT model of the same seed, which is trained here if that run is
    not done: a small policy keeps no protocol by itself (ours)."""
    if not p.cold_start:
        return policy_of(p)
    cold = p.model_copy(update={"arm": "sft"})
    with runs.start(NOTEBOOK, cold, inputs, VeriSftParams, wait=True) as run:
        return str(_sft(policy_of(cold), shown, run.folder, cold))


def train_arm(
    p: Veri,
    start: str,
    train: Sequence[Example],
    given: Mapping[str, Sequence[Chunk]],
    shown: Sequence[tuple[str, list[Turn]]],
    folder: Path,
) -> Path:
    """Train the arm `p.arm` from the policy `start`; the policy's folder.

    given: of each claim what an offline prompt gives. shown: what sft learns from,
    prompts with what follows them.
    """
    if p.arm == "sft":
        return _sft(start, shown, folder, p)
    how = reward_params(p)
    prompts = (
        claim_sets.asked(train, p)
        if how.online
        else claim_sets.asked_offline(train, given, p)
    )
    rows = [
        {"prompt": _turn(prompt, p), "label": e.label, "evidence": e.evidence}
        for prompt, e in zip(prompts, train, strict=True)
    ]
    rollout = search_rollout.rollout_function if how.online else None
    return grpo.grpo(start, rows, rewards.reward_function, folder, how, rollout)


def chosen(
    p: Veri, dev: Sequence[Example], given: Mapping[str, Sequence[Chunk]], folder: Path
) -> tuple[Path, dict[int, float]]:
    """The policy of offline RL with the highest validation accuracy (App. H), of equal
    ones the last; and the accuracy after each of the updates that it was kept at.

    The accuracy is that of the labels, greedily and with the evidence given, as the
    policy is trained: the paper does not say, its public code has it so.
    """
    how = reward_params(p)
    paths = {step: folder / f"model-{step}" for step in how.kept_steps[:-1]}
    paths[how.kept_steps[-1]] = folder / "model"
    accuracy = {
        step: _validation_accuracy(path, dev, given, folder / f"validation_{step}", how)
        for step, path in paths.items()
    }
    best = max(accuracy, key=lambda step: (accuracy[step], step))
    return paths[best], accuracy


def _validation_accuracy(
    policy: Path,
    dev: Sequence[Example],
    given: Mapping[str, Sequence[Chunk]],
    folder: Path,
    p: Veri,
) -> float:
    """The share of right labels to offline prompts; an answer that the system had to
    open, after a search, has none."""
    alone = {"max_searches": 0, "max_prompt_length": p.max_context_length}
    prompts = claim_sets.asked_offline(dev, given, p)
    rows = _play(policy, dev, prompts, folder, p.model_copy(update=alone))
    right = [row.right(row.answer.label) and not forced(row.trajectory) for row in rows]
    return sum(right) / len(right)


def _turn(prompt: str, p: Veri) -> str | list[dict[str, str]]:
    return [{"role": "user", "content": prompt}] if p.chat else prompt


def _sft(
    start: str,
    shown: Sequence[tuple[str, list[Turn]]],
    folder: Path,
    p: VeriSftParams,
) -> Path:
    """SFT on what the policy itself is to write: what a search finds is in no loss."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(start)
    rows = [
        search_rollout.sft_row(prompt, turns, tokenizer, p) for prompt, turns in shown
    ]
    return sft.sft(start, rows, folder, p)
