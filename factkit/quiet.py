"""What one sees while one waits: a bar, and of libraries what one needs to know.

A message of a library that is not shown is named here, with the reason why nobody
misses it; nothing else is left out.
"""

import contextlib
import logging
import re
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import Trainer

LOGGED = {  # a library's logger → its message
    # checkpoints are then sorted by the numbers in their names, which is what we want
    "transformers.trainer_utils": r"mtime may not be reliable on this filesystem, .*",
    # of a policy whose embeddings are its head: they are loaded, and stay tied; PPO's
    # head of values is read from a file of its own
    "transformers.trainer": r"There were missing keys in the checkpoint model loaded: "
    r"\[('lm_head.weight')?(, )?('value_head.weight', 'value_head.bias')?\]\.",
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


def train(trainer: "Trainer", label: str = "", checkpoint: str | None = None) -> None:
    """Run a trainer, from a checkpoint if one is given, with the kit's bar of its
    updates in place of what it would print; without a label there is no bar.

    An interrupt closes the bar, else the next one would be drawn below it.
    """
    from transformers import PrinterCallback, TrainerCallback

    from factkit.runs import progress_bar

    class Progress(TrainerCallback):
        """Shows the reward or the loss of the last update that was logged."""

        def on_train_begin(self, args, state, control, **_):
            done = state.global_step  # more than 0 where it goes on
            bar = progress_bar(state.max_steps, label, "step", done)
            self.bar = stack.enter_context(bar)

        def on_step_end(self, args, state, control, **_):
            self.bar.update(state.global_step - self.bar.n)

        def on_log(self, args, state, control, logs, **_):
            shown = {k: logs.get(k) for k in ("reward", "loss")}
            known = {k: f"{float(v):.3f}" for k, v in shown.items() if v is not None}
            if known:  # no reward: the judge failed
                self.bar.set_postfix(known, refresh=False)

    trainer.remove_callback(PrinterCallback)
    with contextlib.ExitStack() as stack:
        trainer.add_callback(Progress())
        trainer.train(resume_from_checkpoint=checkpoint)
