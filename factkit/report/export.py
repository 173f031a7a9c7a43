"""Export a finished run: its model to load elsewhere, or its rows as a data set.

A model's folder has the weights, or an adapter with the name of its base; a tokenizer
whose chat template puts the prompt of training; the decoding of evaluation; and a model
card. It needs neither the kit nor the machine that trained it.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from factkit import prompts
from factkit.data import assets
from factkit.policy import models
from factkit.policy.chat_template import make_chat_template
from factkit.report import cards
from factkit.run import files, results
from factkit.run.failures import UserError
from factkit.train.setup import merge_adapter

BASE = "base"  # folder of an adapter's base that no hub has
WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*config.json")


def read_run(folder: Path) -> dict[str, Any]:
    """The results of a finished run. Raises UserError if it is not finished."""
    found = results.read_results(folder)
    if not found:
        raise UserError(f"{folder}: no results.json, so no finished run")
    return found


def model_folder(run: Mapping[str, Any]) -> Path:
    """The folder of the model that the run evaluated.

    Of several that it kept, `kept_step` names the one; of DPO's iterations it is the
    last. Raises UserError if the arm is not trained, or the model is gone.
    """
    folder, p = Path(run["folder"]), run["params"]
    step = int(run["metrics"].get("kept_step", 0))
    iterations = sorted(
        folder.glob("iteration-*/model"), key=lambda m: int(m.parent.name[10:])
    )
    for model in (folder / f"model-{step}", folder / "model", *iterations[-1:]):
        if (model / "config.json").exists() or models.adapter_config(str(model)):
            return model
    raise UserError(
        f"{folder} has no trained model: its policy is {p['policy']}, or the folder is "
        "a copy without weights"
    )


def write_model(run: Mapping[str, Any], folder: Path, merge: bool = False) -> None:
    """Write a run's model into a new folder.

    merge: an adapter is merged into its base, in the base's dtype: a few answers may
    differ from those that the adapter gave. An adapter whose base is a folder of this
    machine brings a copy of it, in `base`. Raises UserError if the folder is not empty,
    or the base is gone.
    """
    model, p = model_folder(run), run["params"]
    tokenizer = models.load_tokenizer(str(model))
    template = prompts.template(p["prompt_template"])
    tokenizer.chat_template = make_chat_template(template, p["chat"], tokenizer)
    adapter = models.adapter_config(str(model))
    base = _base_of(adapter, p["policy"]) if adapter else ""
    with _new_folder(folder) as partial:
        whole = [partial]
        _copy_weights(model, partial)
        if adapter and merge:
            merge_adapter(partial, p["dtype"])
        elif adapter:
            config = partial / "adapter_config.json"
            local = Path(base).is_dir()
            if local:
                _copy_weights(Path(base), partial / BASE)
                whole.append(partial / BASE)
            values = json.loads(config.read_text("utf-8"))
            values["base_model_name_or_path"] = base = BASE if local else base
            config.write_text(json.dumps(values, indent=1), "utf-8")
        for place in whole:
            tokenizer.save_pretrained(place)
            text = json.dumps(_decoding(p, tokenizer), indent=1)
            (place / "generation_config.json").write_text(text, "utf-8")
        cards.model_card(run, "" if merge else base).save(partial / "README.md")


def write_data(run: Mapping[str, Any], folder: Path) -> None:
    """Write a run's rows (samples, answers, verdicts) with a card as a data set: one
    configuration per file. Raises UserError if it has none."""
    tables = sorted(Path(run["folder"]).glob("*.jsonl"))
    if not tables:
        raise UserError(f"{run['folder']} has no rows, *.jsonl")
    with _new_folder(folder) as partial:
        for table in tables:
            shutil.copy(table, partial)
        cards.data_card(run, tables).save(partial / "README.md")


def push(folder: Path, name: str, kind: str) -> str:
    """Upload an exported folder to the hub as owner/name, private if it is new; returns
    its address. kind: model or dataset. The login is huggingface_hub's.

    Raises UserError for an adapter with its base in a folder, which no hub resolves.
    """
    from huggingface_hub import HfApi

    if (folder / BASE).exists():
        raise UserError(f"{folder}: an adapter on a local base; export it with --merge")
    api = HfApi()
    url = api.create_repo(name, repo_type=kind, private=True, exist_ok=True)
    api.upload_folder(folder_path=folder, repo_id=name, repo_type=kind)
    return str(url)


def _base_of(adapter: Mapping[str, Any], policy: str) -> str:
    """The hub name or this machine's folder of an adapter's base."""
    base = adapter["base_model_name_or_path"]
    if assets.of_hub(policy) == base:  # also where it was read from a local copy
        return policy
    if Path(base).is_absolute() and not Path(base).is_dir():
        raise UserError(f"{base}, the adapter's base, is gone: run its arm again")
    return base


def _new_folder(folder: Path) -> Any:
    """A context: a folder to fill, which appears only when it is complete."""
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    return files.whole_folder(folder)


def _copy_weights(source: Path, folder: Path) -> None:
    """Copy weights and configurations; no records of the run, no pickles."""
    folder.mkdir(exist_ok=True)
    for pattern in WEIGHTS:
        for file in source.glob(pattern):
            shutil.copy(file, folder)


def _decoding(p: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    """The decoding of evaluation: greedy; a plain answer ends with its line."""
    ends = [tokenizer.eos_token_id]
    if p["answer_format"] == "plain":
        texts = tokenizer.batch_decode([[i] for i in range(len(tokenizer))])
        ends += [i for i, t in enumerate(texts) if len(f"{t}.".splitlines()) > 1]
    return {
        "do_sample": False,
        "max_new_tokens": max(
            p["max_completion_length"], p.get("evaluation_tokens", 0)
        ),
        "eos_token_id": ends,
        "pad_token_id": tokenizer.pad_token_id,
    }
