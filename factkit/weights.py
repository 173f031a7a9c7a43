"""What weights may be loaded: safetensors, by code of transformers alone."""

from collections.abc import Iterator
from contextlib import contextmanager

from factkit import UserError

SAFE = {"use_safetensors": True, "trust_remote_code": False}


class WeightsError(UserError):
    """A model is not of the kind that the kit loads."""


@contextmanager
def loading(model: str) -> Iterator[None]:
    """Say of a model that transformers refuses by `SAFE` why, and what to do."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = str(error)
        if "safetensors" in reason:
            raise WeightsError(
                f"{model}: no weights as safetensors; pickles can run code, so none "
                "is loaded: save the model anew with save_pretrained on a machine "
                "that trusts it, or take one that has safetensors"
            ) from error
        if "trust_remote_code" in reason:
            raise WeightsError(
                f"{model}: needs code of its own, which the kit does not run: take a "
                "model that transformers knows"
            ) from error
        raise
