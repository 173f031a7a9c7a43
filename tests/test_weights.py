"""Weights are safetensors, and no model brings code of its own."""

import json
import re

import pytest

from factkit import models, weights
from factkit.params import ROOT
from factkit.train.pretrain import build_policy


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    from factkit.world import facts as world
    from factkit.world import texts as world_text

    tokenizer = world_text.build_tokenizer(world.build_world(people=20), "plain")
    folder = tmp_path_factory.mktemp("policy")
    build_policy(tokenizer, hidden_size=32, layers=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_pickled_weights_are_refused_with_the_way_out(policy):
    import torch

    (policy / "model.safetensors").unlink()
    torch.save({}, policy / "pytorch_model.bin")
    with pytest.raises(weights.WeightsError, match="save_pretrained"):
        models.load_policy(str(policy))


class Tokenizer:
    """Stands in for one that loads, so that the model's code is what is asked for."""

    pad_token = "pad"


def test_a_model_with_code_of_its_own_is_refused_with_the_way_out(
    tmp_path, monkeypatch
):
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}
    monkeypatch.setattr(
        "transformers.AutoTokenizer.from_pretrained", lambda *_, **__: Tokenizer()
    )
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(weights.WeightsError, match="transformers knows"):
        models.load_policy(str(tmp_path))


def test_every_model_is_loaded_as_safetensors_without_its_own_code():
    """All but the GGUF that the kit converts itself, verified by its digest."""
    offenders = []
    for path in ROOT.glob("factkit/**/*.py"):
        for call in re.finditer(
            r"(?:Model\w*|PeftModel)\.from_pretrained\(.{,200}",
            path.read_text(),
            re.DOTALL,
        ):
            if not re.search(
                r"weights\.SAFE|use_safetensors=True|\*\*so|\*\*lo", call[0]
            ):
                offenders.append(f"{path.name}: {call[0][:80]}")
    assert offenders == []
