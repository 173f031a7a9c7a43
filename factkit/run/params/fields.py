"""Types of parameters: what pydantic refuses of a value, whichever parameter it is."""

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import from_json

from factkit import prompts
from factkit.run.paths import ROOT

POLICIES = ("tiny-world", "smollm2-135m-instruct", "smollm2-135m-leads")
# 1000 × seed + the number of an engine or an iteration must be below NumPy's 2^32
MOST_SEED = 4_000_000
MOST, MOST_FEW, MOST_TOKENS = 10_000_000, 10_000, 2**20
KEPT = """params notebooks factkit tests .git outputs/reference
/bin /boot /etc /lib /proc /sbin /sys /usr/bin /usr/lib /usr/lib64 /usr/sbin""".split()
# of a judge's request, what the kit sets itself, under any server's name for it
OWN_FIELDS = """model messages prompt max_tokens max_completion_tokens max_new_tokens
temperature top_p n best_of stream stream_options response_format structured_outputs
guided_json guided_regex guided_choice guided_grammar tools tool_choice functions
function_call stop extra_body extra_headers""".split()
ADDRESS = re.compile(
    r"https?://([\w-]+(\.[\w-]+)*|\[[\da-f:.]+\])(:\d+)?(/[\w./{}~%+:=,-]*)?", re.ASCII
)
ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def require(message: str, fits: Callable[[str], object]) -> AfterValidator:
    """A validator of values that fit; `message` says what they must be."""

    def check(value: str) -> str:
        try:
            fine = fits(value)
        except (OSError, RecursionError) as error:  # which pydantic would let through
            raise ValueError(str(error)) from None
        if not fine:
            raise ValueError(message)
        return value

    return AfterValidator(check)


def are_some_of(text: str, known: Collection[str], least: int = 0) -> bool:
    """Whether a text is known names between spaces, `least` at least and each once."""
    names = text.split()
    return least <= len(names) == len({*names}) and {*names} <= {*known}


def some_of(*known: str, least: int = 0) -> Any:
    """The type of a text of known names."""
    message = f"there are {', '.join(known)}: list each once, separated by spaces"
    return Annotated[
        Text, require(message, lambda text: are_some_of(text, known, least))
    ]


def require_places(*places: str) -> AfterValidator:
    """A validator of prompt templates in which each place is once."""

    def fits(name: str) -> bool:
        text = prompts.template(name)
        return all(text.count(f"{{{place}}}") == 1 for place in places)

    return require(f"must be a template that holds {places} in braces, each once", fits)


def _are_seeds(text: str) -> bool:
    numbers = text.split()
    plain = all(re.fullmatch(r"0|[1-9]\d{0,9}", n, re.ASCII) for n in numbers)
    once = 0 < len(numbers) == len({*numbers})
    return plain and once and max(map(int, numbers)) <= MOST_SEED


def _is_url(text: str) -> bool:
    return not text or bool(ADDRESS.fullmatch(text)) and urlsplit(text).port != 0


def _is_judge(name: str) -> bool:
    model, _, url = name.rpartition("@")
    named = bool(model and url and _is_url(url))
    return named or name in ("rules", "exact", "contains")


def _is_model(name: str) -> bool:
    """A name of the form owner/name may be on the hub and is not looked for there."""
    folder = Path(name)
    if not folder.is_dir():
        return bool(ON_HUB.fullmatch(name))
    # pickles are refused later, with the remedy
    weights = *folder.glob("*.safetensors"), *folder.glob("*.bin")
    return bool(weights) and (folder / "config.json").is_file()


def has_chat_template(policy: str) -> bool:
    """Whether prompts can be put as a chat's turns; a model of the hub may have one."""
    config = Path(policy) / "tokenizer_config.json"
    if config.is_file() and "chat_template" not in config.read_text("utf-8"):
        return config.with_name("chat_template.jinja").is_file()
    return policy != "tiny-world"


def _is_free(name: str) -> bool:
    """Whether runs may be written there: no file, nor a folder of the kit's own."""
    path = (ROOT / name).resolve()
    kept = any(path.is_relative_to(ROOT / folder) for folder in KEPT)
    files = any(parent.is_file() for parent in (path, *path.parents))
    odd = set(name) & set('{}~*?<>|"\\')
    return not (kept or files or odd or ROOT.is_relative_to(path))


def _is_request(text: str) -> bool:
    request = from_json(text, allow_inf_nan=False) if text else {}
    if not isinstance(request, dict):
        return False
    if own := [key for key in OWN_FIELDS if key in request]:
        raise ValueError(f"the kit sets {', '.join(own)} itself: leave it out")
    return True


OBJECT = "must be a JSON object, as '{\"top_k\": 20}'"  # flat YAML holds no other
Text = Annotated[
    str,
    Field(max_length=1000),
    require(
        "must be one line of words between single spaces",
        lambda text: text == " ".join(text.split()) and text.isprintable(),
    ),
]
Name = Annotated[
    str,
    Field(max_length=200),
    require(
        "must be a name without spaces or special characters",
        re.compile(r"([\w/.@][\w/.:@+-]*)?", re.ASCII).fullmatch,
    ),
]
Variant = Annotated[
    str,
    Field(max_length=80),
    require(
        "must be a name without spaces", re.compile(r"(\w[\w.-]*)?", re.ASCII).fullmatch
    ),
]
Seed = Annotated[int, Field(ge=0, le=MOST_SEED)]
Seeds = Annotated[
    Text,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    require(
        f"must be whole numbers from 0 to {MOST_SEED}, each once, separated by spaces",
        _are_seeds,
    ),
]
MODEL = "must be a folder with config.json and model.safetensors, or owner/name"
Model = Annotated[Text, require(MODEL, _is_model)]
Policy = Annotated[
    Text,
    require(
        f"{MODEL}, or one of {', '.join(POLICIES)}",
        lambda name: name in POLICIES or _is_model(name),
    ),
]
Template = Annotated[Text, require_places("question")]
ClaimTemplate = Annotated[Text, require_places("claim")]
EvidenceTemplate = Annotated[Text, require_places("claim", "evidence")]
Url = Annotated[
    str,
    Field(max_length=400),
    require("must be an address, as http://localhost:8001/v1", _is_url),
]
Judges = Annotated[
    Text,
    require(
        "must be judges between spaces: rules, exact, contains or <model>@<url>",
        lambda text: all(map(_is_judge, text.split())),
    ),
]
Folder = Annotated[
    Text,
    require("must be a folder of its own, outside the kit and the system", _is_free),
]
DataPath = Annotated[
    Text,
    require(
        "must be a file or folder that is there", lambda p: not p or Path(p).exists()
    ),
]
DataFile = Annotated[
    Text, require("must be a file that is there", lambda p: not p or Path(p).is_file())
]
FetchedFile = Annotated[  # doctor looks whether it is there
    Text, require("must be a file", lambda name: not name or not (ROOT / name).is_dir())
]
FetchedFolder = Annotated[
    Text, require("must be a folder", lambda name: not (ROOT / name).is_file())
]
Variable = Annotated[
    str,
    require(
        "must be the name of an environment variable, as OPENAI_API_KEY, that holds "
        "the secret",
        lambda text: re.fullmatch("([A-Z_][A-Z0-9_]*)?", text, re.ASCII) is not None,
    ),
]
RequestFields = Annotated[str, Field(max_length=4000), require(OBJECT, _is_request)]

Count = Annotated[int, Field(ge=1, le=MOST)]
CountOrZero = Annotated[int, Field(ge=0, le=MOST)]
Few = Annotated[int, Field(ge=1, le=MOST_FEW)]  # times, samples, chunks, processes
FewOrZero = Annotated[int, Field(ge=0, le=MOST_FEW)]
Size = Annotated[int, Field(ge=8, le=MOST)]  # of a set of data
Samples = Annotated[int, Field(ge=2, le=MOST_FEW)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
ChunkTokens = Annotated[int, Field(ge=8, le=MOST_TOKENS)]
TokensOrZero = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Width = Annotated[int, Field(ge=32, le=8192, multiple_of=32)]  # heads of 32
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, le=100)]
LearningRate = Annotated[float, Field(gt=0, le=0.1)]
Temperature = Annotated[float, Field(gt=0, le=5)]
TopP = Annotated[float, Field(gt=0, le=1)]
WarmUp = Annotated[float, Field(ge=0, lt=1)]
