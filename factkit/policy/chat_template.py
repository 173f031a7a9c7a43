"""A chat template that puts a message into the prompt that the policy was trained with.

The last message is the question (request, claim); the texts of `documents` are the
references, one per line; `query_time` is a variable of the template. Both are empty if
they are not given. vLLM and llama.cpp take them as `chat_template_kwargs`, transformers
as arguments of `apply_chat_template`. Control tokens in a message stay as they are,
which `prompts.neutral` breaks up in training.
"""

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MESSAGE = "messages[-1]['content']"
TEXTS = "documents | default([], true) | map(attribute='text')"
FIELDS = {  # of a prompt template → the expression in Jinja
    "question": MESSAGE,
    "claim": MESSAGE,
    "references": f"({TEXTS} | join('\\n'))",
    "query_time": "(query_time | default('', true))",
}


def make_chat_template(
    text: str, chat: bool, tokenizer: "PreTrainedTokenizerBase"
) -> str:
    """The chat template in Jinja that fills the prompt template `text` (`prompts.ask`).

    chat: the prompt is a user's turn in the tokenizer's own chat template; else it is
    the whole text, after the BOS token if the tokenizer adds one.
    """
    parts = re.split(rf"\{{({'|'.join(FIELDS)})\}}", text)  # text, field … text
    parts[::2] = [json.dumps(part, ensure_ascii=False) for part in parts[::2]]
    parts[1::2] = [FIELDS[name] for name in parts[1::2]]
    prompt = " ~ ".join(part for part in parts if part != '""')
    if chat:
        turn = f"{{%- set messages = [{{'role': 'user', 'content': {prompt}}}] -%}}"
        return turn + tokenizer.get_chat_template()
    adds_bos = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    return f"{{{{ {'bos_token ~ ' * adds_bos}{prompt} }}}}"
