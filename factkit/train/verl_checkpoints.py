"""verl's checkpoints as the model of a run, which its train notebook evaluates."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from safetensors import SafetensorError

from factkit import UserError
from factkit.data import assets
from factkit.run import files, folders, params, runs
from factkit.run.arms import find_papers
from factkit.run.failures import last_error
from factkit.train import launch
from factkit.train.verl_adapter import count_rollouts


def adopt(checkpoint: Path) -> Path:
    """Make verl's last checkpoint the model of the run that it was trained for.

    checkpoint: …/checkpoints/global_step_N or its `actor`, with FSDP's shards, which
    verl merges, or a whole model in safetensors. The config beside the checkpoints
    names the run; its recipe becomes the model's, with checkpoint and digest of the
    weights. The other policies of p.kept_policies come from earlier checkpoints.

    Returns the model's folder, which appears only when it is complete. Raises UserError
    if there is no such checkpoint, RecipeError if the run has another model, RunError
    if another process writes it.
    """
    step = checkpoint.resolve()
    step = step.parent if step.name == "actor" else step
    home = step.parent.parent  # <paper>-<arm>-s<seed>
    paper = home.name.partition("-")[0]
    config = home / f"{paper}.yaml"
    if paper not in find_papers() or not config.is_file():
        raise UserError(f"{step}: not where `python -m factkit verl` trains")
    written = yaml.safe_load(config.read_text("utf-8"))
    start, kit = written["actor_rollout_ref"]["model"]["path"], written["factkit"]
    p = params.validate(paper, kit["parameters"], str(config))
    steps = {n: f"global_step_{count_rollouts(p, n)}" for n in p.kept_steps}
    if step.name != (last := steps[p.rl_steps]):
        raise UserError(f"{step}: rl_steps={p.rl_steps} end with {last}: train on")
    folder = runs.run_folder(find_papers()[paper].notebooks["train"], p)
    with folders.lock_folder(folder):
        done = (folder / "model").exists()
        before = launch.read_recipes(folder) or launch.read_recipes(folder / "model")
        if before.keys() - {launch.VERL} or (done and not before):
            raise launch.RecipeError(f"{folder}: not trained by verl; move it away")
        if made := before.get(launch.VERL):
            launch.require_same(folder, made, made | kit["recipe"])
        for updates, name in () if done else steps.items():
            end = "" if updates == p.rl_steps else f"-{updates}"
            model, partial = folder / f"model{end}", folder / f"model{end}.partial"
            shutil.rmtree(model, ignore_errors=True)  # of an earlier call
            _write_whole(step.with_name(name), start, partial)
            weights = map(files.file_checksum, sorted(partial.glob("*.safetensors")))
            recipe = kit["recipe"] | {"checkpoint": name, "weights": " ".join(weights)}
            text = json.dumps({launch.VERL: recipe}, indent=1)
            (partial / launch.RECIPE).write_text(text, "utf-8")
            files.rename_whole(partial, model)
    return folder / "model"


def _write_whole(step: Path, start: str, folder: Path) -> None:
    """Write a checkpoint's whole model with the tokenizer of the starting policy, since
    verl's may have another chat template. Raises UserError if the model can't be merged
    or does not fit that policy."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    shutil.rmtree(folder, ignore_errors=True)
    actor = step / "actor"
    places = (
        f for f in (step, actor, actor / "huggingface") if any(f.glob("*.safetens*"))
    )
    if whole := next(places, None):
        pickles = shutil.ignore_patterns("*.bin", "*.pt", "*.pth", "*.pkl", "*.py")
        shutil.copytree(whole, folder, ignore=pickles)
    else:
        merge = "-m verl.model_merger merge --backend fsdp".split()
        merge += ["--local_dir", str(actor), "--target_dir", str(folder)]
        done = subprocess.run([sys.executable, *merge], capture_output=True, text=True)
        if done.returncode:
            error = last_error(done.stderr)
            raise UserError(f"{actor}: {sys.executable} can't merge it: {error}")
    try:
        tokenizer, own = map(AutoTokenizer.from_pretrained, (start, folder))
        if own.get_vocab() != tokenizer.get_vocab():
            raise ValueError("another tokenizer")
        _, info = AutoModelForCausalLM.from_pretrained(
            folder,
            config=AutoConfig.from_pretrained(start),
            output_loading_info=True,
            **assets.SAFE,
        )
        if any(info.values()):
            raise ValueError(f"not its weights: {info}")
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{step} is no model from {start}: {error}") from None
    tokenizer.save_pretrained(folder)
