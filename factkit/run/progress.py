"""Progress bars, also of a trainer."""

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

if TYPE_CHECKING:
    from transformers import Trainer


def progress_bar(
    total: int | None, label: str, unit: str = "it", done: int = 0
) -> tqdm:
    """A tqdm bar, hidden without a label. done: steps of an earlier, stopped run.

    A batch run's kernel has no terminal: `python -m factkit` names its own in
    FACTKIT_TTY. Without one, the bar is drawn every five seconds, because the notebook
    stores what its kernel writes.
    """
    terminal, stream = os.environ.get("FACTKIT_TTY"), sys.stderr
    if terminal and label:
        with contextlib.suppress(OSError):  # it was closed: the run outlives it
            stream = open(terminal, "w", encoding="utf-8")  # noqa: SIM115
    pause = 0.1 if stream.isatty() else 5.0
    disable = {} if label else {"disable": True}  # else TQDM_DISABLE decides
    options = {"desc": label, "file": stream, "mininterval": pause} | disable
    return tqdm(total=total, unit=unit, initial=done, leave=True, **options)


def train(trainer: "Trainer", label: str = "", checkpoint: str | None = None) -> None:
    """Run a trainer, from a checkpoint if given, with a bar instead of printed logs.

    An interrupt closes the bar, so that the next one is drawn in its place.
    """
    from transformers import PrinterCallback, TrainerCallback

    class Progress(TrainerCallback):
        """Shows the last logged reward or loss."""

        def on_train_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            bar = progress_bar(state.max_steps, label, "step", state.global_step)
            self.bar = stack.enter_context(bar)

        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            self.bar.update(state.global_step - self.bar.n)

        def on_log(self, *_: Any, logs: Mapping[str, Any], **__: Any) -> None:
            values = {k: logs[k] for k in ("reward", "loss") if logs.get(k) is not None}
            if values:
                texts = {k: f"{float(v):.3f}" for k, v in values.items()}
                self.bar.set_postfix(texts, refresh=False)

    trainer.remove_callback(PrinterCallback)
    with contextlib.ExitStack() as stack:
        trainer.add_callback(Progress())
        trainer.train(resume_from_checkpoint=checkpoint)
