"""What libraries say that is known and harmless is not shown: each message is named
here, with the reason why nobody misses it, and nothing else is left out."""

import logging
import re
import warnings

LOGGED = {  # a library's logger → its message
    # checkpoints are then sorted by the numbers in their names, which is what we want
    "transformers.trainer_utils": r"mtime may not be reliable on this filesystem, .*",
    # of a policy whose embeddings are its head: they are loaded, and stay tied; PPO's
    # head of values is read from a file of its own
    "transformers.trainer": r"There were missing keys in the checkpoint model loaded: "
    r"\[('lm_head.weight')?(, )?('value_head.weight', 'value_head.bias')?\]\.",
    # a reward model begins as the policy with a new head, which no checkpoint has, in
    # place of the policy's; it must be all that is missing
    "transformers.modeling_utils": r"(?s)\S*ForSequenceClassification LOAD REPORT.*?"
    r"-\+-[^\n]*\n(\S*lm_head\.weight[^\n]*UNEXPECTED[^\n]*\n)?"
    r"\S*score\.weight[^\n]*MISSING[^\n]*\n\s*\S*Notes.*",
}
WARNED = (
    # tqdm looks for widgets in every notebook; the kit draws plain bars
    "IProgress not found",
)


def messages() -> None:
    """Leave out what is named above, whichever library is imported later."""
    for beginning in WARNED:
        warnings.filterwarnings("ignore", message=beginning)
    for name, message in LOGGED.items():
        known = re.compile(message)
        logging.getLogger(name).addFilter(
            lambda record, known=known: not known.fullmatch(record.getMessage())
        )


def bars() -> None:
    """Draw no bars of rows mapped, weights loaded and shards written: they take seconds
    and cut the kit's own bars to pieces. Those of downloads from the hub stay."""
    import datasets
    from transformers.utils import logging as of_transformers

    datasets.disable_progress_bars()
    of_transformers.set_tqdm_hook(
        lambda bar, args, given: bar(*args, **given | {"disable": True})
    )
