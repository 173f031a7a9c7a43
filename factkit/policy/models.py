"""Loading language models, and sampling from them with transformers or vLLM."""

import copy
import functools
import itertools
import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.data.assets import SAFE
from factkit.policy import cpu
from factkit.policy.vllm_engine import Sampled, VllmEngine
from factkit.prompts import ask, template
from factkit.run import machine, quiet

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from factkit.data.examples import Example
    from factkit.run.params.stages import PolicyParams

# pickles and a model's own code could run anything
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM knows


@dataclass(frozen=True)
class Sampling:
    """How to decode. temperature 0 = greedy; `max_new_tokens` in tokens.

    one_line: a completion ends at its first newline, as a short answer does.
    batch_size: sequences at a time by transformers; vLLM finds its own.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    batch_size: int = 64
    one_line: bool = True


def sampling_of(
    p: "PolicyParams", temperature: float = 0.0, top_p: float = 1.0
) -> Sampling:
    """How a run's responses are decoded: length, batch, format of its parameters."""
    return Sampling(
        p.max_completion_length,
        temperature,
        top_p,
        p.eval_batch_size,
        one_line=p.answer_format == "plain",
    )


def policy(
    path: str, p: "PolicyParams"
) -> tuple["PreTrainedModel | VllmEngine", "PreTrainedTokenizerBase"]:
    """Who samples and scores for the policy in `path`, and its tokenizer: the policy
    here, or, where `p.rollouts` names vLLM, engines on all GPUs that train; then this
    process holds none."""
    if p.rollouts == "transformers":
        return load_policy(path, p.dtype)
    replicas = max(1, p.num_processes // p.vllm_tensor_parallel)
    return VllmEngine(vllm_arguments(path, p), replicas), load_tokenizer(path)


def vllm_arguments(path: str, p: "PolicyParams") -> dict[str, Any]:
    """What `vllm.LLM` takes for the policy in `path`, be it an adapter, where nothing
    else is on its GPUs."""
    base = _adapter_base(path)
    arguments = {
        "model": base or path,
        "tokenizer": path,
        "dtype": p.dtype,
        "max_model_len": p.max_context_length,
        "tensor_parallel_size": p.vllm_tensor_parallel,
        "gpu_memory_utilization": 0.8,  # log-probabilities of prompts come beside it
    }
    if base:
        config = (Path(path) / "adapter_config.json").read_text("utf-8")
        rank = json.loads(config)["r"]
        known = next(r for r in LORA_RANKS if r >= rank)
        arguments |= {"enable_lora": True, "max_lora_rank": known}
    return arguments


def load_policy(
    path: str, dtype: str = "float32"
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """A causal language model and its tokenizer, padded on the left, ready to use.

    path: folder or hub name (safetensors only). dtype: "float32" or "bfloat16", on a
    processor without that float32 (`machine.dtype`).
    """
    import torch
    from transformers import AutoModelForCausalLM

    quiet.disable_bars()
    base = _adapter_base(path)
    on_gpu = torch.cuda.is_available()
    own = dtype if on_gpu else machine.dtype(dtype)
    model = AutoModelForCausalLM.from_pretrained(
        base or path, dtype=getattr(torch, own), **SAFE
    )
    if not on_gpu:
        cpu.tune(model)
    if base:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, path, use_safetensors=True)
    if not on_gpu:
        cpu.keep_activations_dtype(model)
    return model.to("cuda" if on_gpu else "cpu").eval(), load_tokenizer(path)


def load_tokenizer(path: str) -> "PreTrainedTokenizerBase":
    """A tokenizer that pads on the left."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        path, padding_side="left", trust_remote_code=False
    )
    tokenizer.clean_up_tokenization_spaces = False  # it would strip real spaces
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def _adapter_base(path: str) -> str | None:
    """The base model's path if `path` is a folder with a LoRA adapter, else None."""
    config = Path(path) / "adapter_config.json"
    if not config.exists():
        return None
    return json.loads(config.read_text("utf-8"))["base_model_name_or_path"]


def sample(
    model: "PreTrainedModel | VllmEngine",
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    sampling: Sampling,
    n: int = 1,
    seed: int = 0,
    progress: str = "",
) -> list[list[str]]:
    """`sample_tokens` as texts, stripped of outer space."""
    drawn = sample_tokens(
        model, tokenizer, prompts, sampling, n, seed, progress=progress
    )
    return [texts_of([ids for ids, _ in row], tokenizer, sampling) for row in drawn]


def sample_tokens(
    model: "PreTrainedModel | VllmEngine",
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    sampling: Sampling,
    n: int = 1,
    seed: int = 0,
    logps: bool = False,
    progress: str = "",
) -> list[list[Sampled]]:
    """n completions a prompt as tokens, in order; logps: with their log π.

    A prompt is read once for its n completions, a common beginning once for all.
    progress: label of a bar, of transformers alone. Deterministic for a seed, a batch
    size and a machine, if transformers samples. Raises EngineError if an engine fails.
    """
    ids = tokenizer(list(prompts))["input_ids"]
    if isinstance(model, VllmEngine):
        return _sampled_by_engine(model, ids, sampling, n, seed, logps)
    import torch

    from factkit.run.progress import progress_bar

    stop = [tokenizer.eos_token_id]
    if sampling.one_line:
        stop += _newline_tokens(tokenizer)
    ends = set(stop)
    prefix = _shared_prefix(ids)  # the shots of a few-shot prompt: computed once
    with torch.inference_mode():
        shared = model(torch.tensor([prefix], device=model.device)) if prefix else None
    # short prompts together: less padding
    order = sorted(range(len(ids)), key=lambda i: (len(ids[i]), i))
    size = max(sampling.batch_size // n, 1)  # prompts at a time
    completions: list[list[Sampled]] = [[] for _ in ids]
    torch.manual_seed(seed)
    with progress_bar(len(ids) * n, progress, unit="sample") as bar:
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            rest = [{"input_ids": ids[i][len(prefix) :]} for i in batch]
            padded = tokenizer.pad(rest, return_tensors="pt").to(model.device)
            cache = copy.deepcopy(shared.past_key_values) if shared else None
            seen = DrawnLogps()
            with torch.inference_mode(), cpu.quick_draws():
                inputs = _read_once(model, padded, prefix, cache, n)
                output = model.generate(
                    **inputs,
                    max_new_tokens=sampling.max_new_tokens,
                    eos_token_id=stop,
                    pad_token_id=tokenizer.pad_token_id,
                    logits_processor=[seen] if logps else None,
                    **decoding(sampling),
                )
                own = seen.until(output).tolist() if logps else [[]] * len(output)
            new = output[:, inputs["input_ids"].shape[1] :].tolist()  # (batch · n, T)
            rows = []
            for row, row_logps in zip(new, own, strict=True):
                places = (k for k, i in enumerate(row, start=1) if i in ends)
                length = next(places, len(row))  # what follows is padding
                rows.append((row[:length], row_logps[:length]))
            for k, i in enumerate(batch):
                completions[i] = rows[k * n : (k + 1) * n]
            bar.update(len(rows))
    return completions


class DrawnLogps:
    """log π of the tokens that `generate` draws, at temperature 1.

    Among its `logits_processor`s it sees a step's logits before they are warped, and at
    the next step which token was drawn.
    """

    def __init__(self) -> None:
        self.steps: list[Tensor] = []
        self.last: Tensor | None = None

    def __call__(self, input_ids: "Tensor", scores: "Tensor") -> "Tensor":
        self._note(input_ids)
        self.last = scores.float().log_softmax(-1)
        return scores

    def _note(self, input_ids: "Tensor") -> None:
        if self.last is not None:
            self.steps.append(self.last.gather(-1, input_ids[:, -1:]))

    def until(self, output: "Tensor") -> "Tensor":
        """Those of `generate`'s output, (B, T), whose last token was drawn last."""
        import torch

        self._note(output)
        return torch.cat(self.steps, dim=1)


def _sampled_by_engine(
    engine: VllmEngine,
    prompts: Sequence[list[int]],
    sampling: Sampling,
    n: int,
    seed: int,
    logps: bool,
) -> list[list[Sampled]]:
    """`sample_tokens` by an engine."""
    settings = {
        "n": n,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_new_tokens,
        "stop": ["\n"] if sampling.one_line else None,
        "logprobs": 0 if logps else None,
    }
    # with one seed for all, vLLM would draw the same random numbers for each prompt
    seeds = random.Random(seed)
    drawn = sampling.temperature > 0
    own = [{"seed": seeds.getrandbits(31)} if drawn else {} for _ in prompts]
    return engine.generate(prompts, [settings | each for each in own])


def texts_of(
    completions: "Sequence[Sequence[int]] | Tensor",
    tokenizer: "PreTrainedTokenizerBase",
    sampling: Sampling,
) -> list[str]:
    """The completions' texts, stripped; of each its first line, where `one_line`."""
    texts = tokenizer.batch_decode(completions, skip_special_tokens=True)
    texts = [text.strip() for text in texts]
    if sampling.one_line:
        texts = [(text.splitlines() or [""])[0].strip() for text in texts]
    return texts


def _read_once(
    model, padded, prefix: Sequence[int], cache, n: int
) -> dict[str, object]:
    """Arguments of `generate` for n completions a prompt that share its reading.

    padded: `input_ids` and `attention_mask` (B, L) of what follows `prefix`, whose
    keys and values `cache` holds (None without). All but the last token of each prompt
    is read here, the result repeated n times: arguments of B · n rows.
    """
    import torch

    rows, length = padded["input_ids"].shape
    ahead = torch.tensor([list(prefix)] * rows, dtype=torch.long).to(model.device)
    ids = torch.cat([ahead, padded["input_ids"]], dim=1)
    mask = torch.cat([torch.ones_like(ahead), padded["attention_mask"]], dim=1)
    if cache is not None:
        cache.batch_repeat_interleave(rows)
    if n > 1 and length > 1:
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        read = model(
            input_ids=padded["input_ids"][:, :-1],
            attention_mask=mask[:, :-1],
            position_ids=positions[:, len(prefix) : -1],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = read.past_key_values
    if n > 1 and cache is not None:
        cache.batch_repeat_interleave(n)
    inputs: dict[str, object] = {
        "input_ids": ids.repeat_interleave(n, dim=0),
        "attention_mask": mask.repeat_interleave(n, dim=0),
    }
    return inputs | ({"past_key_values": cache} if cache is not None else {})


def asked(
    examples: Sequence["Example"],
    name: str,
    tokenizer: "PreTrainedTokenizerBase",
    chat: bool = False,
) -> list[str]:
    """The examples under the template `name`, as turns of a chat if `chat`."""
    text = template(name)
    prompts = [ask(text, example) for example in examples]
    return as_chat(tokenizer, prompts) if chat else prompts


def as_chat(tokenizer: "PreTrainedTokenizerBase", prompts: Sequence[str]) -> list[str]:
    """Each prompt as a user's turn of the tokenizer's chat template, ready to answer.

    Where tokenizing adds the token that begins a text, the one that the template writes
    is taken off.
    """
    adds = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    begin = tokenizer.bos_token if adds else ""
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            tokenize=False,
            add_generation_prompt=True,
        ).removeprefix(begin)
        for prompt in prompts
    ]


def offsets_of(
    completion_ids: Sequence[int], tokenizer: "PreTrainedTokenizerBase"
) -> tuple[str, list[tuple[int, int]]]:
    """A completion's text and the characters [start, end) of each of its T tokens.

    From the tokens as sampled, since encoding the text anew may give others. Special
    tokens have none. Where tokens decoded one by one do not make the text, a token ends
    where the text decoded up to it is still the whole one's: of those that share a
    character of several bytes the last one has it.
    """
    decode = functools.partial(tokenizer.decode, skip_special_tokens=True)
    ids = [int(i) for i in completion_ids]
    text, pieces = decode(ids), [decode([i]) for i in ids]
    ends = list(itertools.accumulate(map(len, pieces)))
    if "".join(pieces) != text:
        prefixes = [decode(ids[: k + 1]) for k in range(len(ids))]
        same = [os.path.commonprefix([prefix, text]) for prefix in prefixes]
        ends = list(itertools.accumulate(map(len, same), max))
    return text, list(zip([0, *ends], ends, strict=False))


def _shared_prefix(ids: Sequence[list[int]], least: int = 16) -> list[int]:
    """The tokens that all prompts begin with; none if they are fewer than `least`."""
    same = min(len(os.path.commonprefix(ids)), *(len(row) - 1 for row in ids))
    return ids[0][:same] if same >= least else []


def decoding(sampling: Sampling) -> dict[str, object]:
    """transformers' generation arguments for greedy or sampled decoding."""
    if sampling.temperature == 0:
        none = dict.fromkeys(("temperature", "top_p", "top_k"))
        return {"do_sample": False, "repetition_penalty": 1.0, **none}
    return {
        "do_sample": True,
        "repetition_penalty": 1.0,  # not that of a model's files
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
    }


@functools.cache
def _newline_tokens(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Ids of the tokens whose text holds a newline: a short answer ends there."""
    texts = tokenizer.batch_decode([[i] for i in range(len(tokenizer))])
    return [i for i, text in enumerate(texts) if "\n" in text]
