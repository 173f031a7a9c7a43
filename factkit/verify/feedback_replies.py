"""What a language model replies where it gives feedback on statements: the schemas, and
reading a whole response's feedback (RLFH Appendix 6.1)."""

from typing import Any

from factkit.verify.feedback import Sentence, Statement, Truth
from factkit.verify.replies import parse_json

SCALE = range(1, 6)  # of informativeness
TRUTHS = [truth.value for truth in Truth]


def _object(**properties: Any) -> dict[str, Any]:
    """The JSON schema of an object with all of these fields and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


TEXT, LABEL = {"type": "string"}, {"type": "string", "enum": TRUTHS}
RATING = {"type": "integer", "enum": list(SCALE)}
LABEL_SCHEMA = _object(label=LABEL)
RATING_SCHEMA = _object(ratings=_list(RATING))
RESPONSE_SCHEMA = _object(
    sentences=_list(
        _object(
            sentence=TEXT,
            statements=_list(
                _object(statement=TEXT, truth=LABEL, informativeness=RATING)
            ),
        )
    )
)


def parse_feedback(reply: str | None) -> list[Sentence] | None:
    """The feedback that a single-pass reply states, None unless it holds exactly one
    JSON object, with the keys, labels and ratings of RESPONSE_SCHEMA and no other.

    As `parse_json` reads it; labels in any letter case. Table 4 maps sentences to
    statements; here they are lists, since a response may repeat both. A sentence
    without statements is left out; a text without a character, or with half of one, is
    a failure.
    """
    of = _fields(parse_json(reply), ("sentences",))
    if of is None or not isinstance(of[0], list):
        return None
    read = [_sentence(sentence) for sentence in of[0]]
    return None if None in read else [s for s in read if s and s.statements]


def _sentence(value: Any) -> Sentence | None:
    of = _fields(value, ("sentence", "statements"))
    if of is None or not _is_text(of[0]) or not isinstance(of[1], list):
        return None
    read = [_statement(statement) for statement in of[1]]
    return None if None in read else Sentence(of[0], tuple(s for s in read if s))


def _statement(value: Any) -> Statement | None:
    of = _fields(value, ("statement", "truth", "informativeness"))
    if of is None or not _is_text(of[0]) or not isinstance(of[1], str):
        return None
    text, truth, rating = of[0], of[1].casefold(), of[2]
    if truth not in TRUTHS or type(rating) is not int or rating not in SCALE:
        return None
    return Statement(text, Truth(truth), rating)


def _fields(value: Any, keys: tuple[str, ...]) -> list[Any] | None:
    """The values of an object that has these keys and no other, in their order."""
    if not isinstance(value, dict) or value.keys() != set(keys):
        return None
    return [value[key] for key in keys]


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)
