"""Multi-turn rollouts: the policy searches, reads what was found, and goes on.

Veri-R1 §2.1 and App. B, F, G. A trajectory is what follows a prompt: the tokens that
the policy sampled, and between them the system's, which no loss sees (`env_mask` 0).
All trajectories that still go on take a turn together; the others are in no batch.

Budgets are in tokens. The paper's (Table 4) add up to its maximum: a prompt of 512,
four turns of 512 and three observations of 768 are 4,864.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import models
from factkit.retrieval.chunks import Chunk, listed
from factkit.retrieval.entries import shown
from factkit.search import Search
from factkit.veri.claims import searcher
from factkit.veri.search_sampling import (
    Generate,
    Tokens,
    with_engine,
    with_model,
    with_server,
)
from factkit.verify.trajectory import (
    CLOSE_INFORMATION,
    OPEN_INFORMATION,
    Turn,
    as_rows,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase
    from trl import GRPOTrainer

    from factkit.veri.arms import VeriParams, VeriRlParams

SEARCH, END_OF_SEARCH = "<search>", "</search>"
HEAD, TAIL = f"\n{OPEN_INFORMATION}\n", f"\n{CLOSE_INFORMATION}\n"
FORCED = "\n<answer>\nLabel:"  # written by the system once the searches are used up


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

    def add(
        self, ids: Tokens, text: str, by_model: bool, logprobs: Sequence[float] = ()
    ) -> None:
        """Tokens of the policy, or of the system."""
        self.ids += ids
        self.env_mask += [int(by_model)] * len(ids)
        self.logprobs += logprobs or [0.0] * len(ids)
        self.turns.append(Turn(text, by_model))

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
    going, entries = every, {}
    for searches_left in range(p.max_searches, -1, -1):
        _take_turn(going, [p.max_completion_length] * len(going), generate, tokenizer)
        going = [r for r in going if r.query is not None]
        if searches_left:
            _reply(going, search, entries, tokenizer, p)
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
        rollout.add(new, text, True, logprobs[i][:limit] if logprobs else ())


def _reply(
    asking: Sequence[Rollout],
    search: Search,
    entries: dict[str, list[Chunk]],
    tokenizer: "PreTrainedTokenizerBase",
    p: "VeriParams",
) -> None:
    """Insert what is found for each trajectory's query; `entries` keeps it by query."""
    new = [q for q in dict.fromkeys(r.query for r in asking) if q not in entries]
    if new:
        entries |= zip(new, search(new, p.retrieved_entries), strict=True)
    for rollout in asking:
        shown_entries, most = entries[rollout.query], p.max_observation_length
        ids, text = observation(shown_entries, tokenizer, most)
        rollout.add(ids, text, by_model=False)


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
        rollout.add(opening, FORCED, by_model=False)
        rollout.forced = True
    _take_turn([r for r, _ in left], [n for _, n in left], generate, tokenizer)


def _encode(tokenizer: "PreTrainedTokenizerBase", text: str) -> Tokens:
    """What a text says of special tokens is text: a page can't end a turn."""
    made = tokenizer(text, add_special_tokens=False, split_special_tokens=True)
    return made["input_ids"]


def _decode(tokenizer: "PreTrainedTokenizerBase", ids: Tokens) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True)


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
    """`prompt_tokens`; ValueError on one of more than p.max_prompt_length tokens."""
    prompts = prompt_tokens(texts, tokenizer, p)
    for text, ids in zip(texts, prompts, strict=True):
        if len(ids) > p.max_prompt_length:
            raise ValueError(
                f"a prompt has {len(ids)} tokens, max_prompt_length is "
                f"{p.max_prompt_length}: {text[:80]!r}"
            )
    return prompts


def prompt_tokens(
    texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase", p: "VeriParams"
) -> list[Tokens]:
    """Prompts of any length as tokens, as turns of a chat if p.chat."""
    prompts = models.as_chat(tokenizer, texts) if p.chat else list(texts)
    return tokenizer(prompts)["input_ids"]


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
        text = turn.text.strip()
        if not turn.by_model and text.startswith(OPEN_INFORMATION):
            lines = text.removeprefix(OPEN_INFORMATION).removesuffix(CLOSE_INFORMATION)
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
