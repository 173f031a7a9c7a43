"""Tokenizers of a few words or pieces, for tests."""

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, WordLevel
from transformers import PreTrainedTokenizerFast


def of_words(*words, splitter=None, **special):
    """A token a word; whitespace belongs to none. What is not among them is the special
    unk_token, or the first one."""
    vocabulary = {word: i for i, word in enumerate(words)}
    unknown = special.get("unk_token", words[0])
    backend = Tokenizer(WordLevel(vocabulary, unk_token=unknown))
    backend.pre_tokenizer = splitter or pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def byte_level(**special):
    """As SmolLM2's: a character outside ASCII is 2–4 tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*letters, "th", "the", "Ġt"])}
    merges = [("t", "h"), ("th", "e"), ("Ġ", "t")]
    backend = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)
