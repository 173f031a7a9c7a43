"""Multi-turn rollouts: the policy searches, reads what was found, and goes on.

Veri-R1 §2.1 and App. B, F, G. A trajectory is what follows a prompt: the tokens that
the policy sampled, and between them the system's, which no loss sees (`env_mask` 0).
All trajectories that still go on take a turn together; the others are in no batch.

Budgets are in tokens. The paper's (Table 4) add up to its maximum: a prompt of 512,
four turns of 512 and three observations of 768 are 4,864.
"""

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import models
from factkit.curate.claim_sets import searcher
from factkit.evaluate.claim_verification import Verified, write_verified
from factkit.retrieval.chunks import Chunk, listed
from factkit.retrieval.entries import shown
from factkit.rewards import token_mapping
from factkit.search_client import Search
from factkit.train import launch
from factkit.verify.trajectory import (
    CLOSE_INFORMATION,
    LABELS,
    OPEN_INFORMATION,
    Turn,
    answer_of,
    as_rows,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl import GRPOTrainer
    from vllm import LLM
    from vllm.lora.request import LoRARequest

    from factkit.veri.params import VeriParams, VeriRlParams

SEARCH, END_OF_SEARCH = "<search>", "</search>"
ANSWER, END_OF_ANSWER = "<answer>", "</answer>"
_LABELS = "|".join(LABELS).replace(" ", r"\s+")
LABEL = re.compile(rf"^[^\S\n]*label\s*:\s*({_LABELS})", re.IGNORECASE | re.MULTILINE)
STOPS = (END_OF_SEARCH, END_OF_ANSWER)
HEAD, TAIL = f"\n{OPEN_INFORMATION}\n", f"\n{CLOSE_INFORMATION}\n"
FORCED = "\n<answer>\nLabel:"  # written by the system once the searches are used up
TAG_TOKENS = 16  # that a closing tag takes at most, with what it shares them with

Tokens = list[int]
# prompts, most new tokens of each → the tokens sampled, up to the end of sequence or to
# the one that completes a tag of STOPS; their log-probabilities, or None for all
Generate = Callable[
    [list[Tokens], Sequence[int]], tuple[list[Tokens], list[list[float]] | None]
]


@dataclass
class Rollout:
    """What follows one prompt, as L tokens and as turns of text.

    env_mask: 1 where sampled, 0 where inserted. logprobs: 0.0 where inserted, and
    everywhere if the backend gives none. forced: the system opened the answer.
    """

    prompt: Tokens
    ids: Tokens = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    forced: bool = False

    def add(self, ids: Tokens, text: str, logprobs: Sequence[float] | None) -> None:
        """Tokens of the policy."""
        self.ids += ids
        self.env_mask += [1] * len(ids)
        self.logprobs += logprobs or [0.0] * len(ids)
        self.turns.append(Turn(text, by_model=True))

    def insert(self, ids: Tokens, text: str) -> None:
        """Tokens of the system."""
        self.ids += ids
        self.env_mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.turns.append(Turn(text, by_model=False))

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
    tokenizer: "PreTrainedTokenizerBase",
    p: "VeriParams",
) -> list[Rollout]:
    """The trajectory that follows each prompt.

    A turn ends with a search, with the answer, at the end of sequence or after
    p.max_completion_length tokens; only a search is followed by another turn. After
    p.max_searches of them, one more search gets no reply: the system opens the answer,
    and what is left of the turn's tokens is for it. Identical queries are searched for
    once. What the search raises goes through: nothing is made of a failure.
    """
    every = [Rollout(list(prompt)) for prompt in prompts]
    going, found = every, {}
    for searches_left in range(p.max_searches, -1, -1):
        _take_turn(going, [p.max_completion_length] * len(going), generate, tokenizer)
        going = [r for r in going if r.query is not None]
        if searches_left:
            _reply(going, search, found, tokenizer, p)
    _force_answers(going, generate, tokenizer, p)
    return every


def _take_turn(
    going: Sequence[Rollout],
    most: Sequence[int],
    generate: Generate,
    tokenizer: "PreTrainedTokenizerBase",
) -> None:
    """The policy goes on with each trajectory, by at most so many tokens."""
    if not going:
        return
    ids, logprobs = generate([r.prompt + r.ids for r in going], most)
    for i, (rollout, new, limit) in enumerate(zip(going, ids, most, strict=True)):
        new = new[:limit]
        text = _decode(tokenizer, new)
        rollout.add(new, text, logprobs and logprobs[i][:limit])


def _reply(
    asking: Sequence[Rollout],
    search: Search,
    found: dict[str, list[Chunk]],
    tokenizer: "PreTrainedTokenizerBase",
    p: "VeriParams",
) -> None:
    """Insert what is found for each trajectory's query; `found` has what was asked."""
    new = [q for q in dict.fromkeys(r.query for r in asking) if q not in found]
    if new:
        found |= zip(new, search(new, p.retrieved_entries), strict=True)
    for rollout in asking:
        entries = found[rollout.query]
        rollout.insert(*observation(entries, tokenizer, p.max_observation_length))


def observation(
    entries: Sequence[Chunk], tokenizer: "PreTrainedTokenizerBase", most: int
) -> tuple[Tokens, str]:
    """Entries as the policy reads them (Fig 9), in at most `most` tokens, and as text.

    What is too long is cut at the end of the entries, so that the tag is always closed.
    """
    lines = listed(piece for entry in entries for piece in shown(entry))
    ids = _enclosed(lines, tokenizer, most)
    return ids, _decode(tokenizer, ids)


def _enclosed(lines: str, tokenizer: "PreTrainedTokenizerBase", most: int) -> Tokens:
    head, body, tail = (_encode(tokenizer, part) for part in (HEAD, lines, TAIL))
    return [*head, *body[: max(most - len(head) - len(tail), 0)], *tail]


def _force_answers(
    going: Sequence[Rollout],
    generate: Generate,
    tokenizer: "PreTrainedTokenizerBase",
    p: "VeriParams",
) -> None:
    """Open the answer of trajectories that would search once more, as far as the last
    turn's tokens reach."""
    opening = _encode(tokenizer, FORCED)
    budgets = []
    for rollout in list(going):
        used = rollout.env_mask[::-1].index(0) if 0 in rollout.env_mask else 0
        used = used or len(rollout.ids)
        budgets.append(p.max_completion_length - used - len(opening))
    left = [(r, n) for r, n in zip(going, budgets, strict=True) if n > 0]
    for rollout, _ in left:
        rollout.insert(opening, FORCED)
        rollout.forced = True
    _take_turn([r for r, _ in left], [n for _, n in left], generate, tokenizer)


def _encode(tokenizer: "PreTrainedTokenizerBase", text: str) -> Tokens:
    """What a text says of special tokens is text: a page can't end a turn."""
    made = tokenizer(text, add_special_tokens=False, split_special_tokens=True)
    return made["input_ids"]


def _decode(tokenizer: "PreTrainedTokenizerBase", ids: Tokens) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True)


# ---- who samples


def with_model(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    sampling: models.Sampling,
) -> Generate:
    """Sampling by transformers, `sampling.batch_size` trajectories at a time."""
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    ends = _ends(tokenizer)

    class Closed(StoppingCriteria):
        """A row stops with the token that completes a tag."""

        def __init__(self, width: int):
            self.width = width  # of the prompts

        def __call__(self, input_ids, scores, **_):
            new = input_ids[:, self.width :][:, -TAG_TOKENS:].tolist()
            return torch.tensor([ends(row) for row in new], device=input_ids.device)

    def generate(prompts: list[Tokens], most: Sequence[int]):
        said: list[Tokens] = [[] for _ in prompts]
        order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
        for start in range(0, len(order), sampling.batch_size):
            batch = order[start : start + sampling.batch_size]
            rows = [{"input_ids": prompts[i]} for i in batch]
            padded = tokenizer.pad(rows, padding_side="left", return_tensors="pt")
            width = padded["input_ids"].shape[1]
            with torch.inference_mode():
                output = model.generate(
                    **padded.to(model.device),
                    max_new_tokens=max(most[i] for i in batch),
                    eos_token_id=tokenizer.eos_token_id,
                    pad_token_id=tokenizer.pad_token_id,
                    stopping_criteria=StoppingCriteriaList([Closed(width)]),
                    **models.decoding(sampling),
                )
            for i, row in zip(batch, output[:, width:].tolist(), strict=True):
                said[i] = _until_end(row, ends, tokenizer.eos_token_id)
        return said, None

    return generate


def _ends(tokenizer: "PreTrainedTokenizerBase") -> Callable[[Tokens], bool]:
    """Whether some tokens, none of which ended them, end with the one that completes a
    tag of STOPS; quick for others."""
    vocabulary = tokenizer.get_vocab()
    brackets = frozenset(i for token, i in vocabulary.items() if ">" in token)

    def ends(ids: Tokens) -> bool:
        if not ids or ids[-1] not in brackets:
            return False
        text = _decode(tokenizer, ids[-TAG_TOKENS:])
        return any(tag in text for tag in STOPS)

    return ends


def _until_end(ids: Tokens, ends: Callable[[Tokens], bool], eos: int) -> Tokens:
    """The tokens up to the end of sequence or of a tag, with it; no padding."""
    for i, token in enumerate(ids, start=1):
        if token == eos or ends(ids[max(i - TAG_TOKENS, 0) : i]):
            return ids[:i]
    return ids


def with_engine(
    llm: "LLM", sampling: models.Sampling, adapter: "LoRARequest | None" = None
) -> Generate:
    """Sampling by a vLLM engine in this process."""
    from vllm import SamplingParams

    def generate(prompts: list[Tokens], most: Sequence[int]):
        how = [
            SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=n,
                stop=list(STOPS),
                include_stop_str_in_output=True,
                logprobs=0,
            )
            for n in most
        ]
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        found = llm.generate(asked, how, use_tqdm=False, lora_request=adapter)
        said = [of.outputs[0] for of in found]
        logprobs = [
            [
                at[token].logprob
                for token, at in zip(of.token_ids, of.logprobs, strict=True)
            ]
            for of in said
        ]
        return [list(of.token_ids) for of in said], logprobs

    return generate


def with_server(base_url: str, model: str, sampling: models.Sampling) -> Generate:
    """Sampling by `vllm serve`, by token ids, all prompts in one request.

    base_url: with /v1.

    Raises openai's errors once its retries are used up.
    """
    from openai import OpenAI

    client = OpenAI(base_url=base_url, api_key="none", timeout=3600)

    def generate(prompts: list[Tokens], most: Sequence[int]):
        reply = client.completions.create(
            model=model,
            prompt=prompts,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=max(most),
            stop=list(STOPS),
            logprobs=0,
            extra_body={"return_token_ids": True, "include_stop_str_in_output": True},
        )
        said = sorted(reply.choices, key=lambda choice: choice.index)
        return (
            [list(choice.token_ids) for choice in said],
            [list(choice.logprobs.token_logprobs) for choice in said],
        )

    return generate


# ---- in training


def rollout_function(
    p: "VeriRlParams", folder: Path
) -> Callable[[list[Any], "GRPOTrainer"], dict[str, list[Any] | None]]:
    """TRL's `rollout_func`: a trajectory for each prompt; a prompt comes once for each
    of its group's. The rewards get `trajectory`, turns as [text, by_model]."""
    # that it may change some day is nothing to a pinned TRL
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    search = searcher(p)

    def rollout(prompts: list[Any], trainer: "GRPOTrainer"):
        tokenizer = trainer.processing_class
        texts = [t if isinstance(t, str) else t[-1]["content"] for t in prompts]
        ids = encode_prompts(texts, tokenizer, p)
        with _sampler(trainer, p) as generate:
            made = rollouts(ids, generate, search, tokenizer, p)
        return {
            "prompt_ids": [r.prompt for r in made],
            "completion_ids": [r.ids for r in made],
            "logprobs": [r.logprobs for r in made] if trainer.use_vllm else None,
            "env_mask": [r.env_mask for r in made],
            "trajectory": [as_rows(r.turns) for r in made],
        }

    return rollout


def encode_prompts(
    texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", p: "VeriParams"
) -> list[Tokens]:
    """Prompts as tokens, as turns of a chat if p.chat.

    Raises ValueError on one of more than p.max_prompt_length tokens.
    """
    ids = _prompts(texts, tokenizer, p)
    for text, of in zip(texts, ids, strict=True):
        if len(of) > p.max_prompt_length:
            raise ValueError(
                f"a prompt has {len(of)} tokens, max_prompt_length is "
                f"{p.max_prompt_length}: {text[:80]!r}"
            )
    return ids


def prompt_lengths(
    texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", p: "VeriParams"
) -> list[int]:
    """The tokens that each prompt has."""
    return [len(of) for of in _prompts(texts, tokenizer, p)]


def _prompts(
    texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", p: "VeriParams"
) -> list[Tokens]:
    asked = models.as_chat(tokenizer, texts) if p.chat else list(texts)
    return tokenizer(asked)["input_ids"]


def sft_row(
    prompt: str,
    trajectory: Sequence[Turn],
    tokenizer: "PreTrainedTokenizerBase",
    p: "VeriParams",
) -> dict[str, list[int]]:
    """A trajectory as TRL's SFT takes it, with the tokens that a rollout would have.

    completion_mask is 1 at what the policy is to write, the end of sequence too.
    Information is cut as in `observation`.
    """
    (ids,) = encode_prompts([prompt], tokenizer, p)
    mask = [0] * len(ids)
    for turn in trajectory:
        new = _encode(tokenizer, turn.text)
        said = turn.text.strip()
        if not turn.by_model and said.startswith(OPEN_INFORMATION):
            lines = said.removeprefix(OPEN_INFORMATION).removesuffix(CLOSE_INFORMATION)
            new = _enclosed(lines.strip(), tokenizer, p.max_observation_length)
        ids, mask = ids + new, mask + [int(turn.by_model)] * len(new)
    ids, mask = [*ids, tokenizer.eos_token_id], [*mask, 1]
    return {"input_ids": ids, "completion_mask": mask}


@contextmanager
def _sampler(trainer: "GRPOTrainer", p: "VeriRlParams") -> Iterator[Generate]:
    """The policy as it stands, to sample from: TRL has sent vLLM its weights."""
    sampling = models.Sampling(
        p.max_completion_length, p.temperature, p.top_p, p.rl_batch_size
    )
    if p.rollouts == "vllm_colocate":
        yield with_engine(trainer.vllm_generation.llm, sampling)
        return
    if p.rollouts == "vllm_server":
        url, name = f"{p.vllm_server_url}/v1", trainer.model.name_or_path
        yield with_server(url, name, sampling)
        return
    from trl.models import unwrap_model_for_generation

    gather = trainer.args.ds3_gather_for_generation
    with unwrap_model_for_generation(
        trainer.model_wrapped, trainer.accelerator, gather_deepspeed3_params=gather
    ) as model:
        yield with_model(model, trainer.processing_class, sampling)


# ---- in evaluation


@launch.distributed
def play(
    policy: str, rows: Sequence[dict[str, Any]], folder: Path, p: "VeriParams"
) -> Path:
    """The greedy trajectories of the policy in the folder `policy`, in a file.

    rows: `prompt` and the fields of `Verified` that a claim has. Returns
    folder/verified.jsonl, as `read_verified` reads it; skipped if it is there.
    """
    path = folder / "verified.jsonl"
    if path.exists():
        return path
    search = searcher(p)
    with _player(policy, p) as (tokenizer, generate, model):
        ids = encode_prompts([row["prompt"] for row in rows], tokenizer, p)
        made = rollouts(ids, generate, search, tokenizer, p)
        if model is not None:
            add_logprobs(made, model, tokenizer, p.eval_batch_size)
    claims = [{k: v for k, v in row.items() if k != "prompt"} for row in rows]
    write_verified(
        path,
        [
            Verified(
                **claim,
                trajectory=r.turns,
                label_probability=label_probability(r, tokenizer),
            )
            for claim, r in zip(claims, made, strict=True)
        ],
    )
    return path


@contextmanager
def _player(
    policy: str, p: "VeriParams"
) -> Iterator[tuple["PreTrainedTokenizerBase", Generate, "PreTrainedModel | None"]]:
    """The policy's tokenizer, who samples greedily, and the model if that is none of
    vLLM's, which gives log-probabilities itself."""
    sampling = models.sampling_of(p)
    if sampling.vllm is None:
        model, tokenizer = models.load_policy(policy, p.dtype)
        yield tokenizer, with_model(model, tokenizer, sampling), model
        return
    with models.engine(policy, 0, sampling.vllm) as (llm, adapter):
        yield llm.get_tokenizer(), with_engine(llm, sampling, adapter), None


def add_logprobs(
    made: Sequence[Rollout],
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    batch_size: int,
) -> None:
    """Fill in the log-probabilities of sampled tokens, at temperature 1, in place."""
    import torch

    for start in range(0, len(made), batch_size):
        batch = made[start : start + batch_size]
        rows = [{"input_ids": r.prompt + r.ids} for r in batch]
        padded = tokenizer.pad(rows, padding_side="left", return_tensors="pt")
        longest = max(len(r.ids) for r in batch)
        with torch.inference_mode():
            logits = model(**padded.to(model.device), logits_to_keep=longest + 1).logits
        for rollout, row in zip(batch, logits, strict=True):
            ids = torch.tensor(rollout.ids, device=row.device)
            logps = row[-1 - len(ids) : -1].float().log_softmax(-1)  # (L, V)
            own = logps.gather(-1, ids.unsqueeze(-1)).squeeze(-1).tolist()
            both = zip(own, rollout.env_mask, strict=True)
            rollout.logprobs = [p if mask else 0.0 for p, mask in both]


def label_probability(
    rollout: Rollout, tokenizer: "PreTrainedTokenizerBase"
) -> float | None:
    """The probability of the label that the policy wrote, given all before it (§4.3).

    The product over the label's tokens; None if there is no readable label.
    """
    label = answer_of(rollout.turns).label
    if label is None:
        return None
    text, offsets = token_mapping.offsets_of(rollout.ids, tokenizer)
    begin = text.rfind(ANSWER) + len(ANSWER)
    found = LABEL.search(text[begin:])
    if not found:
        return None
    start, end = (begin + at for at in found.span(1))
    steps = zip(rollout.logprobs, offsets, strict=True)
    own = [p for p, (a, b) in steps if a < end and b > start]
    return math.exp(sum(own))
