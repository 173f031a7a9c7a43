"""Types of parameters: which values pydantic accepts."""

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import from_json

from factkit import prompts
from factkit.run.paths import ROOT

POLICIES = ("tiny-world", "smollm2-135m-instruct", "smollm2-135m-leads")
# 1000 × seed + the number of an engine or an iteration must be below NumPy's 2^32
MOST_SEED = 4_000_000
MOST, MOST_FEW, MOST_TOKENS = 10_000_000, 10_000, 2**20
KIT_AND_SYSTEM_FOLDERS = """params notebooks factkit tests .git outputs/reference
/bin /boot /etc /lib /proc /sbin /sys /usr/bin /usr/lib /usr/lib64 /usr/sbin""".split()
# fields of a judge's request that the kit sets, under any server's name for them
KIT_REQUEST_FIELDS = """model messages prompt max_tokens max_completion_tokens
max_new_tokens temperature top_p n best_of stream stream_options response_format
structured_outputs guided_json guided_regex guided_choice guided_grammar tools
tool_choice functions function_call stop extra_body extra_headers""".split()
ADDRESS = re.compile(
    r"https?://([\w-]+(\.[\w-]+)*|\[[\da-f:.]+\])(:\d+)?(/[\w./{}~%+:=,-]*)?", re.ASCII
)
ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
FILE_NAME = re.compile(r"(\w[\w.-]*)?", re.ASCII)
MODEL_NAME = re.compile(r"([\w/.@][\w/.:@+-]*)?", re.ASCII)
VARIABLE_NAME = re.compile(r"([A-Z_][A-Z0-9_]*)?", re.ASCII)


# ---- checks of a type's values, for Annotated


def require(message: str, fits: Callable[[str], object]) -> AfterValidator:
    """Accept texts for which `fits` is true; `message` says what they must be."""

    def check(value: str) -> str:
        try:
            accepted = fits(value)
        except (OSError, RecursionError) as error:  # which pydantic would let through
            raise ValueError(str(error)) from None
        if not accepted:
            raise ValueError(message)
        return value

    return AfterValidator(check)


def are_some_of(text: str, known: Collection[str], least: int = 0) -> bool:
    """Whether a text lists known names, each once and at least `least`."""
    names = text.split()
    return least <= len(names) == len({*names}) and {*names} <= {*known}


def require_names(*known: str, least: int = 0) -> AfterValidator:
    """Accept texts that list known names."""
    message = f"there are {', '.join(known)}: list each once, separated by spaces"
    return require(message, lambda text: are_some_of(text, known, least))


def require_places(*places: str) -> AfterValidator:
    """Accept names of prompt templates that hold each place once."""

    def fits(name: str) -> bool:
        text = prompts.template(name)
        return all(text.count(f"{{{place}}}") == 1 for place in places)

    message = f"must be a template that holds {places} in braces, each once"
    return require(message, fits)


def _are_seeds(text: str) -> bool:
    numbers = text.split()
    plain = all(re.fullmatch(r"0|[1-9]\d{0,9}", n, re.ASCII) for n in numbers)
    once = 0 < len(numbers) == len({*numbers})
    return plain and once and max(map(int, numbers)) <= MOST_SEED


def _is_url(text: str) -> bool:
    return not text or bool(ADDRESS.fullmatch(text)) and urlsplit(text).port != 0


def _is_judge(name: str) -> bool:
    model, _, url = name.rpartition("@")
    return name in ("rules", "exact", "contains") or bool(
        model and url and _is_url(url)
    )


def _is_model(name: str) -> bool:
    """Whether a name is a model's folder, or could be one of the hub (owner/name)."""
    folder = Path(name)
    if not folder.is_dir():
        return bool(ON_HUB.fullmatch(name))
    # pickles are refused later, with the remedy
    weights = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    return bool(weights) and (folder / "config.json").is_file()


def has_chat_template(policy: str) -> bool:
    """Whether a policy's tokenizer formats chats; a model of the hub may do so."""
    config = Path(policy) / "tokenizer_config.json"
    if config.is_file() and "chat_template" not in config.read_text("utf-8"):
        return config.with_name("chat_template.jinja").is_file()
    return policy != "tiny-world"


def _may_hold_runs(name: str) -> bool:
    path = (ROOT / name).resolve()
    reserved = any(path.is_relative_to(ROOT / f) for f in KIT_AND_SYSTEM_FOLDERS)
    in_file = any(parent.is_file() for parent in (path, *path.parents))
    unsafe = set(name) & set('{}~*?<>|"\\')
    return not (reserved or in_file or unsafe or ROOT.is_relative_to(path))


def _is_request(text: str) -> bool:
    request = from_json(text, allow_inf_nan=False) if text else {}
    if not isinstance(request, dict):
        return False
    if own := [key for key in KIT_REQUEST_FIELDS if key in request]:
        raise ValueError(f"the kit sets {', '.join(own)} itself: leave it out")
    return True


# ---- types of texts

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
        "must be a name without spaces or special characters", MODEL_NAME.fullmatch
    ),
]
Variant = Annotated[
    str,
    Field(max_length=80),
    require("must be a name without spaces", FILE_NAME.fullmatch),
]
Variable = Annotated[
    str,
    Field(max_length=1000),
    require(
        "must be the name of an environment variable, as OPENAI_API_KEY, that holds "
        "the secret",
        VARIABLE_NAME.fullmatch,
    ),
]
Url = Annotated[
    str,
    Field(max_length=400),
    require("must be an address, as http://localhost:8001/v1", _is_url),
]
RequestFields = Annotated[  # flat YAML holds no mapping
    str,
    Field(max_length=4000),
    require("must be a JSON object, as '{\"top_k\": 20}'", _is_request),
]
Seeds = Annotated[
    Text,
    require(
        f"must be whole numbers from 0 to {MOST_SEED}, each once, separated by spaces",
        _are_seeds,
    ),
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
]
Judges = Annotated[
    Text,
    require(
        "must be judges between spaces: rules, exact, contains or <model>@<url>",
        lambda text: all(map(_is_judge, text.split())),
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
Folder = Annotated[
    Text,
    require(
        "must be a folder of its own, outside the kit and the system", _may_hold_runs
    ),
]
DataPath = Annotated[  # relative to the project's root, as all paths
    Text,
    require(
        "must be a file or folder that is there", lambda p: not p or (ROOT / p).exists()
    ),
]
DataFile = Annotated[
    Text,
    require("must be a file that is there", lambda p: not p or (ROOT / p).is_file()),
]
FetchedFile = Annotated[  # doctor checks whether it is there
    Text, require("must be a file", lambda name: not name or not (ROOT / name).is_dir())
]
FetchedPath = Annotated[  # with claims=own a file, else a folder that is fetched
    Text, require("must be a path", lambda name: (ROOT / name).exists() or True)
]
FetchedFolder = Annotated[
    Text, require("must be a folder", lambda name: not (ROOT / name).is_file())
]

# ---- types of numbers

Seed = Annotated[int, Field(ge=0, le=MOST_SEED)]
Count = Annotated[int, Field(ge=1, le=MOST)]
CountOrZero = Annotated[int, Field(ge=0, le=MOST)]
Few = Annotated[int, Field(ge=1, le=MOST_FEW)]  # times, samples, chunks, processes
FewOrZero = Annotated[int, Field(ge=0, le=MOST_FEW)]
Size = Annotated[int, Field(ge=8, le=MOST)]  # of a data set
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
