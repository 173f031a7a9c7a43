"""Checks of rewards before a trainer uses them."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
from transformers import TrainerCallback

from factkit import UserError
from factkit.prompts import completion_texts
from factkit.verify.failures import (
    FEWEST_RESPONSES,
    MOST_JUDGE_FAILURES,
    describe_failures,
)

# of the main thread's processor time for the rewards of a batch; waiting takes none
CPU_S = 600.0
PART = 20  # characters by which a text tells its response


class RewardError(UserError):
    """A reward is neither a finite number nor None, or took too long."""


class CheckedReward(TrainerCallback):
    """A reward function with TRL's signature that checks its values at each call.

    A reward is a finite number, a sequence with a finite number for each token of the
    completion, or None if a judge failed: TRL leaves such a completion out of its
    group's baseline. Raises RewardError on anything else, since one NaN makes all
    weights NaN. Raises RuntimeError if more than 5 % of the responses have no reward:
    from `FEWEST_RESPONSES` on, and as a trainer's callback at the end of training.
    """

    def __init__(self, reward: Callable[..., Sequence[Any]]) -> None:
        self.reward = reward
        self.__name__ = getattr(reward, "__name__", type(reward).__name__)
        self.seen = self.failed = 0

    def __call__(
        self, completions: Sequence[Any], completion_ids: Sequence[Any], **columns: Any
    ) -> list[Any]:
        with self._limited(completions):
            rewards = self.reward(
                completions=completions, completion_ids=completion_ids, **columns
            )
        if isinstance(rewards, str) or not hasattr(rewards, "__len__"):
            self._refuse(f"returned {rewards!r:.80}, not a list of rewards")
        if len(rewards) != len(completions):
            self._refuse(
                f"gave {len(rewards)} rewards for {len(completions)} responses"
            )
        checked = []
        for i, reward in enumerate(rewards):
            try:
                checked.append(_to_floats(reward, len(completion_ids[i])))
            except (TypeError, ValueError) as error:
                (text,) = completion_texts([completions[i]])
                self._refuse(f"{error}; the response: {text[:200]!r}")
        self.seen += len(checked)
        self.failed += checked.count(None)
        if self.seen >= FEWEST_RESPONSES:
            self._check_failures()
        return checked

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._check_failures()

    def _check_failures(self) -> None:
        share = self.failed / max(self.seen, 1)
        if share > MOST_JUDGE_FAILURES:
            raise RuntimeError(
                f"reward {self.__name__}: none for {self.failed} of {self.seen} "
                f"responses ({share:.1%}){describe_failures()}. Check the "
                "verifier's endpoint and run again"
            )

    def _refuse(self, why: str) -> None:
        raise RewardError(f"reward {self.__name__}: {why}")

    @contextmanager
    def _limited(self, completions: Sequence[Any]) -> Iterator[None]:
        """Raise RewardError after CPU_S of computing, as a regular expression may need
        on a degenerate response. Only the main thread can be interrupted."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        began = time.thread_time()

        def stop(_: int, frame: FrameType | None) -> None:
            if time.thread_time() - began < CPU_S:  # the timer counts all threads
                return
            text = _response_at(frame, completion_texts(completions))
            self._refuse(
                f"computed for {CPU_S:g} s, last on the response {text[:200]!r}"
            )

        before = signal.signal(signal.SIGVTALRM, stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S, 1.0)  # again, if it is caught
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)


def _response_at(frame: FrameType | None, responses: Sequence[str]) -> str:
    """The response of which a function on the stack holds a part, else the longest."""
    while frame:
        for value in frame.f_locals.values():
            text = value.strip() if isinstance(value, str) else ""
            for response in responses if len(text) >= PART else ():
                if text in response:
                    return response
        frame = frame.f_back
    return max(responses, key=len, default="")


def _to_floats(reward: Any, tokens: int) -> float | list[float] | None:
    """A reward as Python's floats. Raises TypeError or ValueError if it is none."""
    if reward is None:
        return None
    values = np.asarray(reward.tolist() if hasattr(reward, "tolist") else reward)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"{reward!r:.80} is no number")
    if values.ndim and values.shape != (tokens,):
        raise ValueError(f"{len(values)} rewards for {tokens} tokens")
    for infinite in values[~np.isfinite(values)].flat:
        raise ValueError(f"{infinite} is neither a finite number nor None")
    return values.astype(float).tolist()
