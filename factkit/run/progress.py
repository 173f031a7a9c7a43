"""What one sees while one waits: a bar, also of a training."""

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tqdm import tqdm
    from transformers import Trainer


def progress_bar(total: int, label: str, unit: str = "it", done: int = 0) -> "tqdm":
    """A tqdm bar, hidden without a label; in a batch run started from a terminal it is
    drawn on that terminal. done: how many an earlier, stopped run left to go on from.

    A notebook's kernel has no terminal: `python -m factkit` hands it the name of its
    own in FACTKIT_TTY. Elsewhere the bar is drawn every five seconds, since what a
    kernel writes is kept in the notebook.
    """
    from tqdm import tqdm

    terminal, stream = os.environ.get("FACTKIT_TTY"), sys.stderr
    if terminal and label:
        with contextlib.suppress(OSError):  # it was closed: the run outlives it
            stream = open(terminal, "w", encoding="utf-8")  # noqa: SIM115
    pause = 0.1 if stream.isatty() else 5.0
    hidden = {} if label else {"disable": True}
    where = {"desc": label, "file": stream, "mininterval": pause} | hidden
    return tqdm(total=total, unit=unit, initial=done, leave=True, **where)


def train(trainer: "Trainer", label: str = "", checkpoint: str | None = None) -> None:
    """Run a trainer, from a checkpoint if one is given, with the kit's bar of its
    updates in place of what it would print; without a label there is no bar.

    An interrupt closes the bar, else the next one would be drawn below it.
    """
    from transformers import PrinterCallback, TrainerCallback

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
