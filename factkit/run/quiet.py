"""Silence messages of libraries that are known to be harmless, each with its reason."""

import logging
import re
import warnings
from functools import partial

LOGGED = {  # a library's logger → its message
    # checkpoints are then sorted by the numbers in their names, as intended
    "transformers.trainer_utils": r"mtime may not be reliable on this filesystem, .*",
    # tied embeddings are loaded and stay tied; PPO's value head has a file of its own
    "transformers.trainer": r"There were missing keys in the checkpoint model loaded: "
    r"\[('lm_head.weight')?(, )?('value_head.weight', 'value_head.bias')?\]\.",
    # a reward model starts from the policy with a new head; nothing else may be missing
    "transformers.modeling_utils": r"(?s)\S*ForSequenceClassification LOAD REPORT.*?"
    r"-\+-[^\n]*\n(\S*lm_head\.weight[^\n]*UNEXPECTED[^\n]*\n)?"
    r"\S*score\.weight[^\n]*MISSING[^\n]*\n\s*\S*Notes.*",
}


def silence_messages() -> None:
    """Silence the messages above, whichever library is imported later."""
    # tqdm's, without widgets; the kit draws plain bars
    warnings.filterwarnings("ignore", message="IProgress not found")
    for name, message in LOGGED.items():
        logging.getLogger(name).addFilter(partial(_is_unknown, re.compile(message)))


def _is_unknown(known: re.Pattern[str], record: logging.LogRecord) -> bool:
    return not known.fullmatch(record.getMessage())


def disable_bars() -> None:
    """Disable progress bars of steps that take seconds (mapping, loading, saving), so
    that the kit's own stay whole. Bars of downloads stay."""
    import datasets
    from transformers.utils import logging as transformers_logging

    datasets.disable_progress_bars()
    transformers_logging.set_tqdm_hook(
        lambda bar, args, given: bar(*args, **given | {"disable": True})
    )
