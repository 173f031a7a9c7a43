"""Rollouts in which the policy searches, reads what was found, and continues.

Veri-R1 §2.1 and App. B, F, G. A trajectory follows a prompt: turns that the policy
samples, and between them observations that the system inserts, which are in no loss
(`env_mask` 0). All unfinished trajectories take a turn together, in one batch.

Budgets are in tokens. The paper's (Table 4) add up to its maximum: a prompt of 512,
four turns of 512 and three observations of 768 are 4,864.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from factkit import prompts
from factkit.data.bm25 import CorpusIndex
from factkit.data.corpus import Chunk, format_chunks
from factkit.data.entries import split_entry
from factkit.data.examples import Example, read_rows
from factkit.data.search import Search, in_process, over_http, shuffled
from factkit.papers.veri.arms import VeriParams, VeriRlParams
from factkit.policy import models, vllm_engine
from factkit.policy.decoding import Sampling
from factkit.policy.policy import Policy, VllmPolicy
from factkit.policy.vllm_engine import Sampled, Tokens
from factkit.run import connections, runs
from factkit.train.rollouts import awake
from factkit.verify.trajectory import CLOSE_INFORMATION, OPEN_INFORMATION, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer
    from trl import GRPOTrainer

    from factkit.verify.llm import Endpoint

SEARCH, END_OF_SEARCH = "<search>", "</search>"
HEAD, TAIL = f"\n{OPEN_INFORMATION}\n", f"\n{CLOSE_INFORMATION}\n"
FORCED = "\n<answer>\nLabel:"  # written by the system when no search is left
STOPS = (END_OF_SEARCH, "</answer>")
Columns = dict[str, list[Any] | None]  # one value per prompt
# prompts, the most new tokens of each → for each the tokens sampled, up to the end of
# sequence or the token that completes a tag of STOPS, and their log π
Generate = Callable[[list[Tokens], Sequence[int]], list[Sampled]]


@dataclass(frozen=True)
class Limits:
    """The bounds of a trajectory (Table 4).

    max_searches: searches; retrieved_entries: entries that a search returns;
    max_completion_length: new tokens of a turn; max_observation_length: tokens of an
    observation.
    """

    max_searches: int
    retrieved_entries: int
    max_completion_length: int
    max_observation_length: int


def limits_of(p: VeriParams) -> Limits:
    """The limits that the parameters set."""
    return Limits(**{field.name: getattr(p, field.name) for field in fields(Limits)})


# ---- prompts, and what is searched


def format_prompts(
    examples: Sequence[Example],
    name: str,
    evidence: Mapping[str, Sequence[Chunk]] | None = None,
) -> list[str]:
    """Fill the template `name` with each claim, for a policy that searches (Fig 9).

    evidence: claim id → the texts that the prompt holds, for a policy that answers at
    once (Fig 10).
    """
    text = prompts.template(name)
    if evidence is None:
        return [prompts.fill(text, claim=e.question) for e in examples]
    return [
        prompts.fill(text, claim=e.question, evidence=format_chunks(evidence[e.id]))
        for e in examples
    ]


def tokenize_prompts(
    texts: Sequence[str], tokenizer: "Tokenizer", chat: bool
) -> list[Tokens]:
    """Encode prompts, as turns of a chat if `chat`."""
    prompts = models.apply_chat_template(tokenizer, texts) if chat else list(texts)
    return tokenizer(prompts).input_ids


def load_search(p: VeriParams) -> Search:
    """The service at p.search_url, or BM25 over the entries that the data run wrote."""
    if p.search_url:
        search = over_http(p.search_url)
    else:
        entries = runs.run_folder(p.data_notebook, p) / "entries.jsonl"
        search = in_process(CorpusIndex(read_rows(entries, Chunk)))
    return shuffled(search) if p.shuffled_results else search


# ---- a trajectory


@dataclass
class Rollout:
    """What follows a prompt, as L tokens and as turns of text.

    env_mask: 1 where sampled, 0 where inserted. logprobs: 0.0 where inserted. last:
    number of tokens of the last turn. set: the claim set, whose corpus is searched.
    """

    prompt: Tokens
    ids: Tokens = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    last: int = 0
    set: str = ""

    def add(
        self, ids: Tokens, text: str, by_model: bool, logprobs: Sequence[float] = ()
    ) -> None:
        """Append a turn of the policy or of the system."""
        self.ids += ids
        self.env_mask += [int(by_model)] * len(ids)
        self.logprobs += logprobs or [0.0] * len(ids)
        self.turns.append(Turn(text, by_model))
        self.last = len(ids)

    @property
    def query(self) -> str | None:
        """What the last turn searches for; None if it does not search."""
        before, closed, _ = self.turns[-1].text.partition(END_OF_SEARCH)
        _, opened, query = before.rpartition(SEARCH)
        return query.strip() if closed and opened else None


def run_rollouts(
    prompts: Sequence[Tokens],
    generate: Generate,
    search: Search,
    tokenizer: "Tokenizer",
    limits: Limits,
    sets: Sequence[str],
) -> list[Rollout]:
    """Sample the trajectory that follows each prompt (§2.1). sets: the claims' sets.

    A turn ends with a search, with the answer, at the end of sequence or after
    max_completion_length tokens; only a search is followed by another turn. A search
    beyond the max_searches-th finds nothing: the system opens the answer, for which the
    rest of that turn's tokens is left. An error of the search ends all rollouts.
    """
    batch = [Rollout([*ids], set=name) for ids, name in zip(prompts, sets, strict=True)]
    active, turn_tokens = batch, limits.max_completion_length
    for searches_left in range(limits.max_searches, -1, -1):
        # the policy writes a turn; without a search it is the last one
        _sample_turn(active, [turn_tokens] * len(active), generate, tokenizer)
        active = [rollout for rollout in active if rollout.query is not None]
        if active and searches_left:
            # the system searches and inserts what was found
            queries = [rollout.query for rollout in active]
            own_sets = [rollout.set for rollout in active]
            results = search(queries, limits.retrieved_entries, own_sets)
            for rollout, entries in zip(active, results, strict=True):
                ids, text = observation(
                    entries, tokenizer, limits.max_observation_length
                )
                rollout.add(ids, text, by_model=False)
    # after one search too many, the system opens the answer
    opening = _encode(tokenizer, FORCED)
    turn_tokens -= len(opening)
    forced = [rollout for rollout in active if rollout.last < turn_tokens]
    budgets = [turn_tokens - rollout.last for rollout in forced]
    for rollout in forced:
        rollout.add(opening, FORCED, by_model=False)
    _sample_turn(forced, budgets, generate, tokenizer)
    return batch


def _sample_turn(
    active: list[Rollout],
    budgets: list[int],
    generate: Generate,
    tokenizer: "Tokenizer",
) -> None:
    """Continue each trajectory by a turn of the policy, of at most `budgets` tokens."""
    if not active:
        return
    samples = generate([r.prompt + r.ids for r in active], budgets)
    for rollout, (ids, logps), budget in zip(active, samples, budgets, strict=True):
        text = tokenizer.decode(ids[:budget], skip_special_tokens=True)
        rollout.add(ids[:budget], text, True, logps[:budget])


def observation(
    entries: Sequence[Chunk], tokenizer: "Tokenizer", max_tokens: int
) -> tuple[Tokens, str]:
    """Entries as the policy reads them (Fig 9), as at most `max_tokens` tokens and as
    text. The entries are truncated, never the closing tag.
    """
    lines = format_chunks(piece for entry in entries for piece in split_entry(entry))
    ids = _enclose(lines, tokenizer, max_tokens)
    return ids, tokenizer.decode(ids, skip_special_tokens=True)


def _enclose(lines: str, tokenizer: "Tokenizer", max_tokens: int) -> Tokens:
    head, body, tail = (_encode(tokenizer, part) for part in (HEAD, lines, TAIL))
    return [*head, *body[: max(max_tokens - len(head) - len(tail), 0)], *tail]


def _encode(tokenizer: "Tokenizer", text: str) -> Tokens:
    """Encode special tokens as plain text: a page can't end a turn."""
    tokens = tokenizer(text, add_special_tokens=False, split_special_tokens=True)
    return tokens["input_ids"]


def sft_row(
    ids: Tokens,
    trajectory: Sequence[Turn],
    tokenizer: "Tokenizer",
    max_observation_length: int,
) -> dict[str, list[int]]:
    """A trajectory after the prompt's `ids`, as TRL's SFT expects it: the tokens that a
    rollout would have, and completion_mask, 1 at those that the policy is to write."""
    mask = [0] * len(ids)
    for turn in trajectory:
        turn_ids, text = _encode(tokenizer, turn.text), turn.text.strip()
        if not turn.by_model and text.startswith(OPEN_INFORMATION):
            lines = text.removeprefix(OPEN_INFORMATION).removesuffix(CLOSE_INFORMATION)
            turn_ids = _enclose(lines.strip(), tokenizer, max_observation_length)
        ids, mask = ids + turn_ids, mask + [int(turn.by_model)] * len(turn_ids)
    return {
        "input_ids": [*ids, tokenizer.eos_token_id],
        "completion_mask": [*mask, 1],
    }


# ---- who samples a turn of each trajectory: a policy or a server


def with_policy(policy: Policy, sampling: Sampling) -> Generate:
    """Sample with a policy: transformers here, or vLLM's engines."""
    return partial(policy.complete, sampling=sampling, stops=STOPS)


def with_server(endpoint: "Endpoint", sampling: Sampling) -> Generate:
    """Sample with `vllm serve`, by token ids.

    Prompts of one budget share a request: the server refuses a prompt that leaves no
    room for `max_tokens`. Raises openai's errors after its retries.
    """
    from openai import DefaultHttpxClient, OpenAI

    proxy = connections.uses_proxy(endpoint.url)
    client = OpenAI(
        api_key=endpoint.key or "none",
        base_url=endpoint.url,
        default_headers=endpoint.headers,
        http_client=DefaultHttpxClient(trust_env=proxy),
        timeout=3600,
    )
    # not the values that Qwen's files would fill in
    fixed = {"top_k": 0, "repetition_penalty": 1.0}
    fixed |= {"return_token_ids": True, "include_stop_str_in_output": True}

    def generate(prompts: list[Tokens], budgets: Sequence[int]) -> list[Sampled]:
        turns: list[Sampled] = [([], []) for _ in prompts]
        for budget in sorted(set(budgets)):
            indices = [i for i, other in enumerate(budgets) if other == budget]
            reply: Any = client.completions.create(  # with vLLM's token_ids
                model=endpoint.model,
                prompt=[prompts[i] for i in indices],
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=budget,
                stop=list(STOPS),
                logprobs=0,
                extra_body={**fixed, **endpoint.extra},
            )
            for choice in reply.choices:
                logps = list(choice.logprobs.token_logprobs)
                turns[indices[choice.index]] = list(choice.token_ids), logps
        return turns

    return generate


# ---- in training


def rollout_function(p: VeriRlParams, folder: Path) -> Callable[..., Columns]:
    """Make TRL's `rollout_func`: one trajectory per prompt, whose turns the rewards get
    as `trajectory`. TRL passes prompts only, so a prompt's set is looked up in the
    rows."""
    # TRL warns that the interface may change; it is pinned
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    search, limits = load_search(p), limits_of(p)
    set_of: dict[str, str] = {}

    def rollout(prompts: list[Any], trainer: "GRPOTrainer") -> Columns:
        tokenizer, rows = trainer.processing_class, trainer.train_dataset
        if not set_of:
            set_of.update((_text(row["prompt"]), row["set"]) for row in rows)
        texts = [_text(prompt) for prompt in prompts]
        ids, sets = (
            tokenize_prompts(texts, tokenizer, p.chat),
            [set_of[t] for t in texts],
        )
        with _sampler(trainer, p) as generate:
            batch = run_rollouts(ids, generate, search, tokenizer, limits, sets)
        return {
            "prompt_ids": [r.prompt for r in batch],
            "completion_ids": [r.ids for r in batch],
            "logprobs": [r.logprobs for r in batch] if trainer.use_vllm else None,
            "env_mask": [r.env_mask for r in batch],
            "trajectory": [r.turns for r in batch],
        }

    return rollout


def _text(prompt: str | list[dict[str, str]]) -> str:
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


@contextmanager
def _sampler(trainer: "GRPOTrainer", p: VeriRlParams) -> Iterator[Generate]:
    """Sample from the policy in training; TRL has sent vLLM its weights."""
    sampling = Sampling(
        p.max_completion_length, p.temperature, p.top_p, p.rl_batch_size
    )
    if p.rollouts == "vllm_colocate":
        with awake(trainer.vllm_generation) as llm:
            engine: Any = SimpleNamespace(generate=partial(vllm_engine.generate, llm))
            yield with_policy(VllmPolicy(engine=engine), sampling)
        return
    from trl.models import unwrap_model_for_generation

    gather = trainer.args.ds3_gather_for_generation
    with unwrap_model_for_generation(
        trainer.model_wrapped, trainer.accelerator, gather_deepspeed3_params=gather
    ) as model:
        policy = Policy.of(model, trainer.processing_class)
        yield with_policy(policy, sampling)
