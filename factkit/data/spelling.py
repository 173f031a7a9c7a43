"""One spelling of what short answers and queries write in several ways.

For comparison alone: letters without diacritics, numbers, dates, eras and signs each as
one word. Where a spelling is ambiguous it stays as it is, so that two answers are
rather taken as different: "1.500" is a decimal, "03/04/2021" has no month.
"""

import re
import unicodedata
from collections.abc import Callable
from decimal import Decimal
from functools import cache, lru_cache

LONGEST = 1_000  # characters of a line or sentence that rules by patterns read

# Latin letters that Unicode does not decompose; "WITH STROKE" and the like are by name
LETTERS = {"ß": "ss", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d", "ı": "i", "ё": "е"}
LETTERS |= {k.upper(): v.capitalize() for k, v in LETTERS.items() if len(k.upper()) < 2}
LETTERS |= {"٬": ",", "٫": ".", "\u2044": "/"}  # Arabic separators, the slash of "½"


class _Base(dict):
    """Code point → base letters of a Latin or Greek letter; others unchanged."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        base = LETTERS.get(letter, letter)
        name = unicodedata.name(letter, "")
        if name.startswith(("LATIN", "GREEK")) and base == letter:
            decomposed = unicodedata.normalize("NFKD", letter)
            base = "".join(c for c in decomposed if not unicodedata.combining(c))
            if base == letter and " WITH " in name:
                base = unicodedata.lookup(name.partition(" WITH ")[0])
        elif name.startswith("COMBINING"):  # what no letter took up
            base = ""
        self[code] = base
        return base


_BASES = _Base()


def fold(text: str) -> str:
    """The text in NFKC, Latin and Greek letters without diacritics: "Łódź" → "Lodz".

    Marks of other scripts stay: they tell letters apart, as in "か" and "が".
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text).translate(_BASES)


POWERS = {
    **{"hundred": 100, "dozen": 12, "thousand": 1000, "k": 1000, "K": 1000},
    **{"million": 10**6, "mn": 10**6, "M": 10**6, "billion": 10**9, "bn": 10**9},
    **{"B": 10**9, "trillion": 10**12, "tn": 10**12},
}
CURRENCIES = {"$": "dollars", "€": "euros", "£": "pounds", "¥": "yen", "₹": "rupees"}
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH = (
    r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b"
)
_DAY = r"(\d\d?)(?:st|nd|rd|th)?"
_YEAR = r"([12]\d{3}|\d+_bc)(?!\w)"
_SIGNS = {"+": "_plus", "#": "_sharp", "♯": "_sharp", "♭": "_flat"}
_BEFORE = {"–": "minus_", "<": "below_", ">": "above_", "±": "about_", "+": ""}
_BEFORE |= {"≤": "below_", "≥": "above_"}
_JOINTS = {"-": "_to_", "–": "_to_", "/": "_over_", ":": "_colon_", "^": "_power_"}


def _date(year: str, month: str, day: str = "") -> str:
    """A date as one word that begins with its year, then its month: "1868_12_9"."""
    number = int(month) if month.isdigit() else MONTHS.index(month[:3].lower()) + 1
    return "_".join(filter(None, (year, str(number), day and str(int(day)))))


def _numeric_date(match: re.Match[str]) -> str:
    """ "31/12/1868" or "12/31/1868"; of an ambiguous one the year alone is certain."""
    first, second, year = int(match[1]), int(match[2]), match[3]
    if first == second or max(first, second) > 12:
        month, day = sorted((first, second))
        return _date(year, str(month), str(day)) if 0 < month < 13 else match[0]
    return f"{year}_0_{first}_{second}"


def _product(match: re.Match[str]) -> str:
    """A number and its power of ten: "1.5 million" → "1500000"."""
    return f"{(Decimal(match[1]) * POWERS[match[2] or match[3]]).normalize():f}"


Replacement = str | Callable[[re.Match[str]], str]
# (pattern, flags, replacement), in this order
_SPELLINGS: list[tuple[str, int, Replacement]] = [
    # marks: quotes, emphasis, hyphens, characters that do not show
    ("[’‘ʻʼ`´′]", 0, "'"),
    (r"(?<=\d)\*\*(?=\d)", 0, "^"),
    (r"(?<=\d) ?[x×*] ?(?=\d)", 0, "_times_"),
    (r"(?<=[A-Za-z])\$(?=[A-Za-z])", 0, "S"),
    (r"(?<=\d)'s\b", 0, "s"),
    (r"(?<![*\w])([A-Z])\*(?![*\w])", 0, r"\1_star"),
    (r'(?<![^\W_])_+|_+(?![^\W_])|[*"“”„]', 0, ""),
    ("[‐‑‒−﹣－]", 0, "-"),
    # numbers: digit groups, decimals
    (r"(?<=\d),(?=(?:\d\d,){0,3}\d{3}(?!\d))", 0, ""),
    (
        r"(?<![\w.,])\d{1,3}(?:[ ']\d{3})+(?![\w'])"
        r"|(?<![\w.,])\d{1,3}(?:\.\d{3}){2,}(?![\w.])"
        r"|(?<![\w.,])\d{1,3}(?:\.\d{3})+(?=,\d)",
        0,
        lambda m: re.sub(r"\D", "", m[0]),
    ),
    (r"(?<![\w,.])(\d+),(\d\d?|\d{5,})(?![\w,]|\.\d)", 0, r"\1.\2"),
    (r"(?<![\w.,])\.(?=\d)", 0, "0."),
    # what belongs to a number: power of ten, per cent, currency, unit, era, sign
    (r"\ba dozen\b", re.I, "12"),
    (
        r"(?<![\w.])(\d{1,15}(?:\.\d{1,15})?)(?:[ -]?"
        r"(dozen|hundred|thousand|million|billion|trillion|[mbt]n)|([kKMB]))\b",
        0,
        _product,
    ),
    (r"%| per cent\b", 0, " percent"),
    ("‰", 0, " permille"),
    (
        r"(?:\bUS)?([$€£¥₹]) ?(\d[\d.]*\b)|(?<![\w.])(\d[\d.]*) ?([$€£¥₹])",
        0,
        lambda m: f"{m[2] or m[3]} {CURRENCIES[m[1] or m[4]]}",
    ),
    (r"(?<![\w.])(\d+)(?=(?:[kcm]m|k?g|mi|ft|mph|[KMG]?Hz|[kM]?W)\b)", 0, r"\1 "),
    (r"\b(?:AD|A\.D\.) ?(?=\d)", 0, ""),
    (r"(\d|century)(?: ?AD| A\.D\.?| ?CE| C\.E\.?)(?!\w)", re.I, r"\1"),
    (r"\bBC ?(\d+)", 0, r"\1 BC"),
    (r"\bc(?:irca|a?\.) ?(?=\d)", 0, "about "),
    (
        r"(\d|\b(?:century|millennium)) ?"
        r"(?:B\.? ?C(?:\.? ?E)?\b\.?|before (?:Christ|the Common Era)\b)",
        re.I,
        r"\1_bc",
    ),
    # dates
    (
        r"\b([12]\d{3})[-/](0?[1-9]|1[0-2])[-/](\d\d?)(?:T\S*)?\b",
        0,
        lambda m: _date(m[1], m[2], m[3]),
    ),
    (
        rf"\b{_DAY}(?: of)? {_MONTH}\.?,? {_YEAR}",
        re.I,
        lambda m: _date(m[3], m[2], m[1]),
    ),
    (
        rf"\b{_MONTH}\.? (?:the )?{_DAY},? {_YEAR}",
        re.I,
        lambda m: _date(m[3], m[1], m[2]),
    ),
    (rf"\b{_MONTH}\.?,? {_YEAR}", re.I, lambda m: _date(m[2], m[1])),
    (r"\b(\d\d?)[/.-](\d\d?)[/.-]([12]\d{3})\b", 0, _numeric_date),
    (rf"\b{_DAY}(?: of)? {_MONTH}", re.I, lambda m: _date("day", m[2], m[1])),
    (rf"\b{_MONTH} (?:the )?{_DAY}\b", re.I, lambda m: _date("day", m[1], m[2])),
    (r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day,? (?=\d+_)", re.I, ""),
    # signs, and what joins two numbers
    (r"(?:(?<![\w)\].,%-])-+|\b(?:minus|negative) )(?=\d)", re.I, "minus_"),
    (r"(?<!\w)(?:(–)|([<>±≤≥+]) ?)(?=\d)", 0, lambda m: _BEFORE[m[1] or m[2]]),
    (r"(?<=\d)\^[({]?-(?=\d)", 0, "^minus_"),
    (r"(?<=[A-Za-z])\^(?=\d)", 0, ""),
    (r"(?<=\d)([-–/:^])[({]?(?=\d|minus)", 0, lambda m: _JOINTS[m[1]]),
    (r"(?<=\d)\.(?=\d)", 0, "_point_"),
    # names with symbols
    (r"(?<=\w)[+#♯♭]+(?!\w)", 0, lambda m: "".join(_SIGNS[c] for c in m[0])),
    (r"\b([A-G])[ -](sharp|flat)\b", 0, r"\1_\2"),
    (r"\b([A-Z][a-z]?|AB)-+(?![\w-])", 0, r"\1_minus"),
    (r"(?<![\w.])\.(?=[A-Za-z])", 0, "dot_"),
    (r"&", 0, " and "),
]
RULES = [(re.compile(pattern, flags), new) for pattern, flags, new in _SPELLINGS]

SUPERSCRIPT = re.compile(r"(?<=\d)[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")  # of a number; "m²" is "m2"
ROMAN = {
    tens + ones: str(10 * i + j)
    for i, tens in enumerate(("", "X", "XX", "XXX"))
    for j, ones in enumerate(" I II III IV V VI VII VIII IX".split(" "))
    if len(tens + ones) > 1
}


@cache
def _letter(char: str) -> str:
    """A digit in ASCII, nothing for what does not show, a vowel sign as a word's part:
    in "कि" and "की" it is all that differs."""
    category = unicodedata.category(char)
    if category == "Nd":
        return str(int(char))
    if category.startswith("M"):
        return f"_{ord(char):x}"
    return "" if category in ("Cf", "Cs") else char


@lru_cache(10_000)
def plain(text: str) -> str:
    """The text on one line, with one spelling of letters, numbers, dates and signs.

    Each number, date, or name with a sign is one word: "−40" is "minus_40", "44 BC"
    "44_bc", "2 million" "2000000", "9 December 1868" "1868_12_9", "C++" "C_plus_plus".
    """
    text = SUPERSCRIPT.sub(lambda m: f"^{m[0]}", text)
    text = re.sub(r"(?<=\d)(?=[¼-¾⅐-⅞])", " ", text)
    text = fold(text)
    if not text.isascii():
        text = "".join(map(_letter, text.replace("≠", " not ")))
    text = " ".join(text.split())
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())


@lru_cache(10_000)
def with_digits(text: str) -> str:
    """A text with its number words and Roman numerals in digits: "Act 2"."""
    from text_to_num import alpha2digit

    words = re.sub(r"(?<=\w )[IVX]+\b", lambda m: ROMAN.get(m[0], m[0]), plain(text))
    return plain(alpha2digit(words, "en", 0))
