"""Multi-turn rollouts: the policy searches, reads what was found, and goes on.

Veri-R1 §2.1 and App. B, F, G. A trajectory is what follows a prompt: the tokens that
the policy sampled, and between them the system's, which no loss sees (`env_mask` 0).
All trajectories that still go on take a turn together; the others are in no batch.

Budgets are in tokens. The paper's (Table 4) add up to its maximum: a prompt of 512,
four turns of 512 and three observations of 768 are 4,864.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import prompts
from factkit.data.bm25 import CorpusIndex
from factkit.data.corpus import Chunk, listed
from factkit.data.entries import shown
from factkit.data.examples import Example, read_rows
from factkit.data.search import Search, in_process, over_http
from factkit.facts.source import open_source
from factkit.policy import cpu, models, vllm_engine
from factkit.policy.vllm_engine import Sampled, Tokens
from factkit.run import connections, runs
from factkit.train.rollouts import awake
from factkit.verify.trajectory import CLOSE_INFORMATION, OPEN_INFORMATION, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedModel as Model
    from transformers import PreTrainedTokenizerBase as Tokenizer
    from trl import GRPOTrainer

    from factkit.papers.veri.arms import VeriParams, VeriRlParams

SEARCH, END_OF_SEARCH = "<search>", "</search>"
STOPS = (END_OF_SEARCH, "</answer>")
TAG_TOKENS = 16  # that a closing tag takes at most, with what it shares them with
HEAD, TAIL = f"\n{OPEN_INFORMATION}\n", f"\n{CLOSE_INFORMATION}\n"
FORCED = "\n<answer>\nLabel:"  # written by the system once the searches are used up

# prompts, most new tokens of each → the tokens sampled, up to the end of sequence or to
# the one that completes a tag of STOPS, and their log π
Generate = Callable[[list[Tokens], Sequence[int]], list[Sampled]]


# ---- what the policy is asked, and what it searches in


def asked(
    examples: Sequence[Example],
    p: "VeriParams",
    given: Mapping[str, Sequence[Chunk]] | None = None,
) -> list[str]:
    """Each claim's prompt: for a policy that searches (Fig 9), or, where the texts are
    given (claim id → its evidence among others), for one that answers at once (Fig 10).
    """
    if given is None:
        text = prompts.template(p.prompt_template)
        return [prompts.fill(text, claim=e.question) for e in examples]
    text = prompts.template(p.offline_template)
    return [
        prompts.fill(text, claim=e.question, evidence=listed(given[e.id]))
        for e in examples
    ]


def prompt_tokens(
    texts: Sequence[str], tokenizer: "Tokenizer", p: "VeriParams"
) -> list[Tokens]:
    """Prompts as tokens, as turns of a chat if p.chat."""
    return tokenizer(models.as_chat(tokenizer, texts) if p.chat else [*texts]).input_ids


def searcher(p: "VeriParams") -> Search:
    """What a policy searches with: the service at p.search_url, or BM25 over the
    entries that the data run wrote."""
    if p.search_url:
        return over_http(p.search_url)
    entries = runs.run_folder(p.data_notebook, p) / "entries.jsonl"
    search = in_process(CorpusIndex(read_rows(entries, Chunk)))
    return open_source(p.claims, p).mark_search(search)


# ---- a trajectory


@dataclass
class Rollout:
    """What follows one prompt, as L tokens and as turns of text.

    env_mask: 1 where sampled, 0 where inserted. logprobs: 0.0 where inserted.
    last: tokens of the last turn. set: the claim's, by which it is searched.
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
        """Tokens of the policy, or of the system."""
        self.ids += ids
        self.env_mask += [int(by_model)] * len(ids)
        self.logprobs += logprobs or [0.0] * len(ids)
        self.turns.append(Turn(text, by_model))
        self.last = len(ids)

    @property
    def query(self) -> str | None:
        """What the last turn searches for; None if it does not."""
        before, closed, _ = self.turns[-1].text.partition(END_OF_SEARCH)
        _, opened, query = before.rpartition(SEARCH)
        return query.strip() if closed and opened else None


def rollouts(
    prompts: Sequence[Tokens],
    generate: Generate,
    search: Search,
    tokenizer: "Tokenizer",
    p: "VeriParams",
    sets: Sequence[str],
) -> list[Rollout]:
    """The trajectory that follows each prompt. sets: each prompt's claim's.

    A turn ends with a search, with the answer, at the end of sequence or after
    p.max_completion_length tokens; only a search is followed by another turn. After
    p.max_searches of them, one more search gets no reply: the system opens the answer,
    and what is left of the turn's tokens is for it. What the search raises goes
    through: nothing is made of a failure.
    """
    made = [Rollout([*ids], set=own) for ids, own in zip(prompts, sets, strict=True)]
    going, limit = made, p.max_completion_length
    for searches_left in range(p.max_searches, -1, -1):
        _take_turn(going, [limit] * len(going), generate, tokenizer)
        going = [rollout for rollout in going if rollout.query is not None]
        if going and searches_left:
            queries, own_sets = [r.query for r in going], [r.set for r in going]
            replies = search(queries, p.retrieved_entries, own_sets)
            for rollout, entries in zip(going, replies, strict=True):
                told = observation(entries, tokenizer, p.max_observation_length)
                rollout.add(*told, by_model=False)
    opening = _encode(tokenizer, FORCED)
    limit -= len(opening)
    forced = [rollout for rollout in going if rollout.last < limit]
    budgets = [limit - rollout.last for rollout in forced]
    for rollout in forced:
        rollout.add(opening, FORCED, by_model=False)
    _take_turn(forced, budgets, generate, tokenizer)
    return made


def _take_turn(
    going: list[Rollout], budgets: list[int], generate: Generate, tokenizer: "Tokenizer"
) -> None:
    """The policy goes on with each trajectory, by at most so many tokens."""
    if not going:
        return
    sampled = generate([r.prompt + r.ids for r in going], budgets)
    for rollout, (new, logps), most in zip(going, sampled, budgets, strict=True):
        text = tokenizer.decode(new[:most], skip_special_tokens=True)
        rollout.add(new[:most], text, True, logps[:most])


def observation(
    entries: Sequence[Chunk], tokenizer: "Tokenizer", most: int
) -> tuple[Tokens, str]:
    """Entries as the policy reads them (Fig 9), in at most `most` tokens, and as text.

    What is too long is cut at the end of the entries, so that the tag is always closed.
    """
    lines = listed(piece for entry in entries for piece in shown(entry))
    ids = _enclosed(lines, tokenizer, most)
    return ids, tokenizer.decode(ids, skip_special_tokens=True)


def _enclosed(lines: str, tokenizer: "Tokenizer", most: int) -> Tokens:
    head, body, tail = (_encode(tokenizer, part) for part in (HEAD, lines, TAIL))
    return [*head, *body[: max(most - len(head) - len(tail), 0)], *tail]


def _encode(tokenizer: "Tokenizer", text: str) -> Tokens:
    """What a text says of special tokens is text: a page can't end a turn."""
    tokens = tokenizer(text, add_special_tokens=False, split_special_tokens=True)
    return tokens["input_ids"]


# ---- what SFT is shown


def sft_row(
    prompt: str, trajectory: Sequence[Turn], tokenizer: "Tokenizer", p: "VeriParams"
) -> dict[str, list[int]]:
    """A trajectory as TRL's SFT takes it, with the tokens that a rollout would have.

    completion_mask is 1 at what the policy is to write, the end of sequence too.
    Information is cut as in `observation`.
    """
    (ids,) = prompt_tokens([prompt], tokenizer, p)
    mask = [0] * len(ids)
    for turn in trajectory:
        new, text = _encode(tokenizer, turn.text), turn.text.strip()
        if not turn.by_model and text.startswith(OPEN_INFORMATION):
            lines = text.removeprefix(OPEN_INFORMATION).removesuffix(CLOSE_INFORMATION)
            new = _enclosed(lines.strip(), tokenizer, p.max_observation_length)
        ids, mask = ids + new, mask + [int(turn.by_model)] * len(new)
    ids, mask = [*ids, tokenizer.eos_token_id], [*mask, 1]
    return {"input_ids": ids, "completion_mask": mask}


# ---- in training


def rollout_function(
    p: "VeriRlParams", folder: Path
) -> Callable[[list[Any], "GRPOTrainer"], dict[str, list[Any] | None]]:
    """TRL's `rollout_func`: a trajectory for each prompt; a prompt comes once for each
    of its group's. The rewards get `trajectory`, the turns. TRL hands on the prompts
    alone, so that a prompt's set is looked up in its rows."""
    # that it may change some day is nothing to a pinned TRL
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    search, set_of = searcher(p), {}

    def rollout(prompts: list[Any], trainer: "GRPOTrainer"):
        tokenizer, rows = trainer.processing_class, trainer.train_dataset
        if not set_of:
            set_of.update((_text(row["prompt"]), row["set"]) for row in rows)
        texts = [_text(prompt) for prompt in prompts]
        ids, sets = prompt_tokens(texts, tokenizer, p), [set_of[t] for t in texts]
        with _sampler(trainer, p) as generate:
            made = rollouts(ids, generate, search, tokenizer, p, sets)
        return {
            "prompt_ids": [r.prompt for r in made],
            "completion_ids": [r.ids for r in made],
            "logprobs": [r.logprobs for r in made] if trainer.use_vllm else None,
            "env_mask": [r.env_mask for r in made],
            "trajectory": [r.turns for r in made],
        }

    return rollout


def _text(prompt: str | list[dict[str, str]]) -> str:
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


@contextmanager
def _sampler(trainer: "GRPOTrainer", p: "VeriRlParams") -> Iterator[Generate]:
    """The policy as it stands, to sample from: TRL has sent vLLM its weights."""
    sampling = models.Sampling(
        p.max_completion_length, p.temperature, p.top_p, p.rl_batch_size
    )
    if p.rollouts == "vllm_colocate":
        with awake(trainer.vllm_generation) as llm:
            yield with_engine(partial(vllm_engine.generate, llm), sampling)
        return
    from trl.models import unwrap_model_for_generation

    gather = trainer.args.ds3_gather_for_generation
    with unwrap_model_for_generation(
        trainer.model_wrapped, trainer.accelerator, gather_deepspeed3_params=gather
    ) as model:
        yield with_model(model, trainer.processing_class, sampling)


# ---- who samples a turn


def with_model(
    model: "Model", tokenizer: "Tokenizer", sampling: models.Sampling
) -> Generate:
    """Sampling by transformers, `sampling.batch_size` trajectories at a time."""
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    vocabulary = tokenizer.get_vocab()
    brackets = frozenset(i for token, i in vocabulary.items() if ">" in token)

    def ends(ids: Tokens) -> bool:
        """Whether the last token completes a tag of STOPS; quick for most."""
        if not ids or ids[-1] not in brackets:
            return False
        text = tokenizer.decode(ids[-TAG_TOKENS:], skip_special_tokens=True)
        return any(tag in text for tag in STOPS)

    class Closed(StoppingCriteria):
        """A row stops with the token that completes a tag."""

        def __init__(self, width: int):
            self.width = width  # of the prompts

        def __call__(self, input_ids, scores, **_):
            new = input_ids[:, self.width :][:, -TAG_TOKENS:].tolist()
            return torch.tensor([ends(row) for row in new], device=input_ids.device)

    def generate(prompts: list[Tokens], budgets: Sequence[int]):
        turns: list[Sampled] = [([], []) for _ in prompts]
        order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
        for start in range(0, len(order), sampling.batch_size):
            batch = order[start : start + sampling.batch_size]
            rows = [{"input_ids": prompts[i]} for i in batch]
            padded = tokenizer.pad(rows, padding_side="left", return_tensors="pt")
            width, seen = padded["input_ids"].shape[1], models.DrawnLogps()
            with torch.inference_mode(), cpu.quick_draws():
                output = model.generate(
                    **padded.to(model.device),
                    max_new_tokens=max(budgets[i] for i in batch),
                    eos_token_id=tokenizer.eos_token_id,
                    pad_token_id=tokenizer.pad_token_id,
                    stopping_criteria=StoppingCriteriaList([Closed(width)]),
                    logits_processor=[seen],
                    **models.decoding(sampling),
                )
                logps = seen.until(output).tolist()
            rows = zip(batch, output[:, width:].tolist(), logps, strict=True)
            for i, row, own in rows:
                stops = (
                    n
                    for n, token in enumerate(row, start=1)
                    if token == tokenizer.eos_token_id or ends(row[:n])
                )
                length = next(stops, len(row))  # no padding
                turns[i] = row[:length], own[:length]
        return turns

    return generate


def with_engine(
    engine: Callable[..., list[list[Sampled]]], sampling: models.Sampling
) -> Generate:
    """Sampling by a vLLM engine's `generate`."""
    shared = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    shared |= {"stop": list(STOPS), "include_stop_str_in_output": True, "logprobs": 0}

    def generate(prompts: list[Tokens], budgets: Sequence[int]):
        settings = [shared | {"max_tokens": most} for most in budgets]
        return [sampled for (sampled,) in engine(prompts, settings)]

    return generate


def with_server(
    base_url: str,
    model: str,
    sampling: models.Sampling,
    key: str = "none",
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] = {},
) -> Generate:
    """Sampling by `vllm serve`, by token ids, the prompts of one budget in one request:
    it refuses a prompt that leaves no room for `max_tokens`.

    base_url: with /v1. Raises openai's errors once its retries are used up.
    """
    from openai import DefaultHttpxClient, OpenAI

    http_client = DefaultHttpxClient(trust_env=connections.uses_proxy(base_url))
    client = OpenAI(
        api_key=key,
        base_url=base_url,
        default_headers=headers,
        http_client=http_client,
    )

    def turns_of(prompts: list[Tokens], most: int) -> list[Any]:
        reply = client.with_options(timeout=3600).completions.create(
            model=model,
            prompt=prompts,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=most,
            stop=list(STOPS),
            logprobs=0,
            extra_body={
                "return_token_ids": True,
                "include_stop_str_in_output": True,
                "top_k": 0,  # not those that Qwen's files would fill in
                "repetition_penalty": 1.0,
                **extra,
            },
        )
        return sorted(reply.choices, key=lambda choice: choice.index)

    def generate(prompts: list[Tokens], budgets: Sequence[int]):
        turns: list[Any] = [None] * len(prompts)
        for most in sorted(set(budgets)):
            alike = [i for i, budget in enumerate(budgets) if budget == most]
            sampled = turns_of([prompts[i] for i in alike], most)
            for i, turn in zip(alike, sampled, strict=True):
                turns[i] = turn
        return [(list(t.token_ids), list(t.logprobs.token_logprobs)) for t in turns]

    return generate
