"""The policy: language model, tokenizer, prompt format and decoding as one object.

`load_policy` makes it from a run's parameters; it samples with transformers or vLLM.
"""

import copy
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from factkit import prompts as templates
from factkit.policy import cpu, decoding, models
from factkit.policy.decoding import Sampling
from factkit.policy.vllm_engine import Sampled, Tokens, VllmEngine
from factkit.run.params.stages import PolicyParams
from factkit.run.progress import progress_bar

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import BatchEncoding
    from transformers import PreTrainedModel as Model
    from transformers import PreTrainedTokenizerBase as Tokenizer

    from factkit.data.examples import Example

STOP_TOKENS = 16  # that a stop string spans at most


@dataclass(kw_only=True)
class Policy:
    """A policy that samples with transformers, in this process.

    Weights and tokenizer are loaded when first used. path: folder or hub name.
    template: name of the default prompt template. chat: whether prompts are user's
    turns of a chat. greedy: the default decoding. states_confidence: responses end with
    a confidence.
    """

    path: str = ""
    dtype: str = "float32"
    template: str = ""
    chat: bool = False
    states_confidence: bool = False
    greedy: Sampling = Sampling(512)

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        return models.load_tokenizer(self.path)

    @cached_property
    def model(self) -> "Model":
        return models.load_model(self.path, self.dtype)

    @classmethod
    def of(cls, model: "Model", tokenizer: "Tokenizer") -> Self:
        """Make a policy of a model that is in memory."""
        policy = cls()
        policy.model, policy.tokenizer = model, tokenizer
        return policy

    def sampling(self, temperature: float, top_p: float = 1.0) -> Sampling:
        """The default decoding, but sampled."""
        return replace(self.greedy, temperature=temperature, top_p=top_p)

    def format_prompts(
        self, examples: Sequence["Example"], template: str = ""
    ) -> list[str]:
        """Fill a prompt template, by default the policy's, with each example."""
        text = templates.template(template or self.template)
        prompts = [templates.ask(text, example) for example in examples]
        return (
            models.apply_chat_template(self.tokenizer, prompts)
            if self.chat
            else prompts
        )

    def generate(
        self,
        prompts: Sequence[str],
        sampling: Sampling,
        n: int = 1,
        seed: int = 0,
        progress: str = "",
    ) -> list[list[str]]:
        """Sample n texts per prompt; arguments as in `generate_tokens`."""
        completions = self.generate_tokens(prompts, sampling, n, seed, progress)
        return [self.decode([ids for ids, _ in row], sampling) for row in completions]

    def generate_tokens(
        self,
        prompts: Sequence[str],
        sampling: Sampling,
        n: int = 1,
        seed: int = 0,
        progress: str = "",
    ) -> list[list[Sampled]]:
        """Sample n completions per prompt as (tokens, log-probabilities).

        The log-probabilities are empty unless `sampling.logprobs`. progress: label of
        a progress bar. The result depends on seed, batch size and machine only. A
        prompt is read once for its n completions, a beginning that all prompts share,
        as a few-shot prompt's, once for all.
        """
        import torch

        ids = self.tokenizer(list(prompts))["input_ids"]
        stops = [self.tokenizer.eos_token_id]
        if sampling.one_line:
            stops += self._newline_tokens
        stop_set = set(stops)
        prefix = decoding.shared_prefix(ids)
        completions: list[list[Sampled]] = [[] for _ in ids]
        torch.manual_seed(seed)
        bar = progress_bar(len(ids) * n, progress, unit="sample")
        with torch.inference_mode(), bar:
            first = torch.tensor([prefix], device=self.model.device)
            shared = self.model(first).past_key_values if prefix else None
            for batch in decoding.by_length(ids, max(sampling.batch_size // n, 1)):
                padded = self._pad([ids[i][len(prefix) :] for i in batch])
                rows = self._generate(
                    decoding.generate_inputs(
                        self.model, padded, prefix, copy.deepcopy(shared), n
                    ),
                    sampling,
                    lambda tokens: tokens[-1] in stop_set,
                    max_new_tokens=sampling.max_new_tokens,
                    eos_token_id=stops,
                )
                for k, i in enumerate(batch):
                    completions[i] = rows[k * n : (k + 1) * n]
                bar.update(len(rows))
        return completions

    def decode(
        self, completions: Sequence[Sequence[int]], sampling: Sampling
    ) -> list[str]:
        """Decode completions, stripped; with `one_line` the first line of each."""
        texts = self.tokenizer.batch_decode(completions, skip_special_tokens=True)
        texts = [text.strip() for text in texts]
        if sampling.one_line:
            texts = [(text.splitlines() or [""])[0].strip() for text in texts]
        return texts

    def complete(
        self,
        prompts: Sequence[Tokens],
        budgets: Sequence[int],
        sampling: Sampling,
        stops: Sequence[str],
    ) -> list[Sampled]:
        """Sample one completion per tokenized prompt, with log-probabilities.

        It ends with the end of sequence or with the token that completes one of the
        strings `stops`. budgets: most new tokens of each prompt.
        """
        import torch
        from transformers import StoppingCriteriaList

        tokenizer, last = self.tokenizer, {stop[-1] for stop in stops}
        vocabulary = tokenizer.get_vocab().items()
        closing = {i for token, i in vocabulary if not last.isdisjoint(token)}

        def ends(tokens: Tokens) -> bool:
            if tokens[-1] == tokenizer.eos_token_id:
                return True
            if tokens[-1] not in closing:  # true of most: decoding is slow
                return False
            text = tokenizer.decode(tokens[-STOP_TOKENS:], skip_special_tokens=True)
            return any(stop in text for stop in stops)

        sampling = replace(sampling, logprobs=True)
        completions: list[Sampled] = [([], []) for _ in prompts]
        for batch in decoding.by_length(prompts, sampling.batch_size):
            padded = self._pad([prompts[i] for i in batch])
            width = padded["input_ids"].shape[1]

            def stopped(
                ids: "Tensor", _: Any, width: int = width, **__: Any
            ) -> "Tensor":
                new = ids[:, width:][:, -STOP_TOKENS:].tolist()
                return torch.tensor([ends(row) for row in new], device=ids.device)

            rows = self._generate(
                padded,
                sampling,
                ends,
                max_new_tokens=max(budgets[i] for i in batch),
                eos_token_id=tokenizer.eos_token_id,
                stopping_criteria=StoppingCriteriaList([stopped]),
            )
            for i, row in zip(batch, rows, strict=True):
                completions[i] = row
        return completions

    def perplexity(
        self, texts: Sequence[str], max_tokens: int = 512, batch_size: int = 8
    ) -> float:
        """exp of the mean negative log-likelihood per token, over all texts' tokens but
        the first of each. Each text is read alone, its first `max_tokens` tokens."""
        import torch

        ids = self._tokenize(texts, max_tokens)
        total, tokens = 0.0, 0
        for start in range(0, len(ids), batch_size):
            batch = ids[start : start + batch_size]
            longest = len(batch[-1])
            # padded on the right: under causal attention no token sees the padding
            rows = [row + [row[-1]] * (longest - len(row)) for row in batch]
            padded = torch.tensor(rows).to(self.model.device)
            lengths = torch.tensor([len(row) for row in batch]).to(padded.device)
            with torch.inference_mode():
                logits = self.model(input_ids=padded).logits[:, :-1].float()
            logp = logits.log_softmax(-1).gather(-1, padded[:, 1:, None])[..., 0]
            counted = torch.arange(1, longest, device=padded.device) < lengths[:, None]
            total -= logp[counted].double().sum().item()
            tokens += int(counted.sum())
        return math.exp(total / tokens)

    def part_size(self, n: int) -> int:
        """Prompts with n completions each between two writes of a resumable job."""
        return 32

    def _tokenize(self, texts: Sequence[str], max_tokens: int) -> list[Tokens]:
        """Texts of two tokens or more, cut, the shortest first."""
        cut = {"truncation": True, "max_length": max_tokens}
        ids = self.tokenizer(list(texts), **cut)["input_ids"]
        return sorted((row for row in ids if len(row) > 1), key=len)

    @cached_property
    def _newline_tokens(self) -> list[int]:
        texts = self.tokenizer.batch_decode([[i] for i in range(len(self.tokenizer))])
        return [i for i, text in enumerate(texts) if "\n" in text]

    def _pad(self, rows: Sequence[Tokens]) -> "BatchEncoding":
        padded = self.tokenizer.pad(
            [{"input_ids": row} for row in rows],
            padding_side="left",
            return_tensors="pt",
        )
        return padded.to(self.model.device)

    def _generate(
        self,
        inputs: Any,
        sampling: Sampling,
        ends: Callable[[Tokens], bool],
        **limits: Any,
    ) -> list[Sampled]:
        """Sample one completion per row of inputs, up to the token at which it ends."""
        import torch

        recorder = decoding.LogpRecorder()
        with torch.inference_mode(), cpu.quick_draws():
            output = self.model.generate(
                **inputs,
                **limits,
                pad_token_id=self.tokenizer.pad_token_id,
                logits_processor=[recorder] if sampling.logprobs else None,
                **decoding.arguments(sampling),
            )
            logps: list[list[float]] = [[]] * len(output)
            if sampling.logprobs:
                logps = recorder.logps(output).tolist()
        new = output[:, inputs["input_ids"].shape[1] :].tolist()  # (B, T)
        rows = []
        for ids, row_logps in zip(new, logps, strict=True):
            lengths = (k for k in range(1, len(ids) + 1) if ends(ids[:k]))
            length = next(lengths, len(ids))  # padding follows
            rows.append((ids[:length], row_logps[:length]))
        return rows


@dataclass(kw_only=True)
class VllmPolicy(Policy):
    """A policy that samples with vLLM; this process holds no weights."""

    engine: VllmEngine

    def generate_tokens(
        self,
        prompts: Sequence[str],
        sampling: Sampling,
        n: int = 1,
        seed: int = 0,
        progress: str = "",
    ) -> list[list[Sampled]]:
        settings = {
            "n": n,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "stop": ["\n"] if sampling.one_line else None,
            "logprobs": 0 if sampling.logprobs else None,
        }
        ids = self.tokenizer(list(prompts))["input_ids"]
        # with one seed for all, vLLM would draw the same random numbers for each prompt
        seeds = random.Random(seed)
        sampled = sampling.temperature > 0
        by_prompt = [{"seed": seeds.getrandbits(31)} if sampled else {} for _ in ids]
        return self.engine.generate(ids, [settings | more for more in by_prompt])

    def complete(
        self,
        prompts: Sequence[Tokens],
        budgets: Sequence[int],
        sampling: Sampling,
        stops: Sequence[str],
    ) -> list[Sampled]:
        settings = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stop": list(stops),
            "include_stop_str_in_output": True,
            "logprobs": 0,
        }
        limits = [settings | {"max_tokens": budget} for budget in budgets]
        return [completion for (completion,) in self.engine.generate(prompts, limits)]

    def perplexity(
        self, texts: Sequence[str], max_tokens: int = 512, batch_size: int = 8
    ) -> float:
        rows = self.engine.logps(self._tokenize(texts, max_tokens))
        logps = list(itertools.chain(*rows))
        return math.exp(-sum(logps) / len(logps))

    def part_size(self, n: int) -> int:
        return max(16_384 // n, 1)


def load_policy(path: str, p: PolicyParams) -> Policy:
    """Make the policy in `path` (weights or adapter) from a run's parameters.

    p.rollouts: transformers, in this process, or vLLM, in processes of its own on all
    GPUs that train.
    """
    settings: dict[str, Any] = {
        "path": path,
        "dtype": p.dtype,
        "template": p.prompt_template,
        "chat": p.chat,
        "states_confidence": p.states_confidence,
        "greedy": Sampling(
            p.response_tokens,
            batch_size=p.eval_batch_size,
            one_line=p.answer_format == "plain",
        ),
    }
    if p.rollouts == "transformers":
        return Policy(**settings)
    replicas = max(1, p.num_processes // p.vllm_tensor_parallel)
    engine = VllmEngine(models.vllm_arguments(path, p), replicas)
    return VllmPolicy(engine=engine, **settings)
