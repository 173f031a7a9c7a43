"""Weights are safetensors, and no model brings code of its own."""

import json
import re

import pytest

from factkit.facts.world import facts, texts
from factkit.policy import models
from factkit.run.params import ROOT
from factkit.train.pretraining import build_policy


def test_pickled_weights_are_refused(tmp_path):
    import torch

    tokenizer = texts.build_tokenizer(facts.build_world(people=20), "plain")
    build_policy(tokenizer, hidden_size=32, layers=1).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        models.load_model(str(tmp_path))


def test_a_model_s_own_code_does_not_run(tmp_path):
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    (tmp_path / "mine.py").write_text("raise SystemExit('it ran')", "utf-8")
    with pytest.raises(ValueError, match="trust_remote_code"):
        models.load_model(str(tmp_path))


def test_every_model_is_loaded_as_safetensors_without_its_own_code():
    """All but the GGUF that the kit converts itself, verified by its digest."""
    safe = r"SAFE|use_safetensors=True|gguf_file|\*\*so|\*\*lo"
    calls = r"(?:Model\w*|PeftModel)\.from_pretrained\(.{,200}"
    offenders = [
        f"{path.name}: {call[0][:80]}"
        for path in ROOT.glob("factkit/**/*.py")
        for call in re.finditer(calls, path.read_text("utf-8"), re.DOTALL)
        if not re.search(safe, call[0])
    ]
    assert offenders == []
