"""Nothing that a library says is left out but what is named, with its reason."""

import importlib.util
import logging
import re
import types
from pathlib import Path

import pytest

from factkit.run import progress, quiet

HEAD = "There were missing keys in the checkpoint model loaded: "


def shown(logger, message):
    """Whether a library's logger passes a message on."""
    record = logging.makeLogRecord({"msg": message, "levelno": logging.WARNING})
    return bool(logging.getLogger(logger).filter(record))


def test_what_is_harmless_is_left_out_and_what_is_like_it_is_shown():
    trainer = "transformers.trainer"
    values = "'value_head.weight', 'value_head.bias'"
    for keys in ("'lm_head.weight'", values, f"'lm_head.weight', {values}"):
        assert not shown(trainer, f"{HEAD}[{keys}].")
    assert shown(trainer, f"{HEAD}['model.embed_tokens.weight'].")
    assert shown(trainer, f"{HEAD}['lm_head.weight', 'model.norm.weight'].")
    assert shown("transformers.trainer_utils", "something else")


def test_of_a_reward_model_a_new_head_may_be_missing_and_nothing_else(tmp_path):
    from transformers import (
        AutoModelForSequenceClassification,
        LlamaConfig,
        LlamaForCausalLM,
        LlamaForSequenceClassification,
    )

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    config = LlamaConfig(vocab_size=8, num_attention_heads=1, **sizes)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "policy")
    headless = LlamaForSequenceClassification(config)
    weights = {k: v for k, v in headless.state_dict().items() if "norm" not in k}
    headless.save_pretrained(tmp_path / "odd", state_dict=weights)
    logger, records = logging.getLogger("transformers.modeling_utils"), []
    handler = logging.Handler()
    handler.emit = records.append
    logger.addHandler(handler)
    for folder in ("policy", "odd"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path / folder)
    logger.removeHandler(handler)
    said = [r.getMessage() for r in records if "LOAD REPORT" in r.getMessage()]
    assert len(said) == 1 and "norm" in said[0]


def test_each_library_still_says_what_is_left_out():
    """What it no longer says is to go from the list."""
    for logger, pattern in quiet.LOGGED.items():
        words, module = re.split(r"[:,]", pattern)[0], logger
        if "REPORT" in pattern:
            words, module = " LOAD REPORT", "transformers.utils.loading_report"
        source = Path(importlib.util.find_spec(module).origin).read_text("utf-8")
        assert words in source, logger


def test_a_bar_tells_from_where_it_goes_on_and_is_closed_if_it_is_stopped(
    capsys, monkeypatch
):
    from tqdm import tqdm

    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    monkeypatch.setenv("FACTKIT_TTY", "/dev/pts/gone")  # closed since: stderr

    class Stopped:
        """A trainer that is stopped in the fifth of ten updates."""

        def remove_callback(self, _):
            pass

        def add_callback(self, callback):
            self.callback = callback

        def train(self, resume_from_checkpoint):
            state = types.SimpleNamespace(max_steps=10, global_step=3)
            self.callback.on_train_begin(None, state, None)
            state.global_step = 4
            self.callback.on_log(None, state, None, logs={"loss": 0.5})
            self.callback.on_step_end(None, state, None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        progress.train(Stopped(), "GRPO ternary-s0", "checkpoint-3")
    red = capsys.readouterr().err
    first, *_, last = re.findall(r"(\d+)/10", red)
    assert (first, last) == ("3", "4")
    assert "loss=0.500" in red
    assert not tqdm._instances


def test_transformers_own_bars_are_not_drawn_and_the_kit_s_are(capsys, monkeypatch):
    from transformers.utils import logging as of_transformers

    from factkit.run.progress import progress_bar

    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    quiet.disable_bars()
    for _ in of_transformers.tqdm(range(3), desc="Loading weights"):
        pass
    assert capsys.readouterr().err == ""
    with progress_bar(2, "probe") as bar:
        bar.update(2)
    assert "probe: 100%" in capsys.readouterr().err
