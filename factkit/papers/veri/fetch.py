"""Download Veri-R1's published claims and the corpora that hold their evidence into
`claims_path`, and index each corpus for serve-search.
"""

import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import tenacity

from factkit.data.entry_index import build_index
from factkit.data.examples import DataError
from factkit.papers.veri import benchmarks
from factkit.papers.veri.arms import VeriParams
from factkit.papers.veri.data import EVALUATION, PUBLISHED
from factkit.run import serving
from factkit.run.files import file_checksum
from factkit.run.params import ROOT
from factkit.run.progress import progress_bar

ATTEMPTS, SILENCE_S = 5, 60.0  # at a download; seconds without a byte
INDEXES = "indexes"  # in claims_path, one per set
UNPACK_ERRORS = (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error)


class File(NamedTuple):
    """A file to download.

    path: in claims_path. url: of the file, or of an archive that holds a file of that
    name. sha256: of what the url gives; "" if unknown (a zip file has checksums).
    """

    path: str
    url: str
    sha256: str
    licence: str


_COMMIT = "0c82ed2ed92a1f4a8b51dc44a6708e9dbdc05c95"
_REPOSITORY = f"https://raw.githubusercontent.com/H0key-22/Veri-R1/{_COMMIT}"
_LICENCE = (
    "Apache-2.0; the claims as their sets: CC BY-SA 3.0 (FEVER, FEVEROUS), MIT "
    "(EX-FEVER), CC BY-SA 4.0 (HoVer), CC BY 4.0 (SciFact)"
)
_CLAIMS = {  # set, "" of the training claims → SHA-256
    "": "97fa148fa8a45a45532cb31cdbdfcb9628f0ad9af7e9fdf825c285406b04a2d4",
    "exfever": "ac629f7ecaae5e33b295b2621432fd17b86ac9f63ec50fe57aa1dffb8882c1ed",
    "fever": "cb2655342b5c0b36ee2652ce1eb6b79f3580728b5301cd5ce7a019755fdbbfa5",
    "feverous": "e956f368a7c6ed0f2ff88933f277dcb63048f30367c641751acfc49d308b0a87",
    "hover": "a6c53bb5ced080bc2fefacc614095d46aa1e9a2cb8a3436f9ff23dd3d761cd63",
    "scifact": "89979139cf578223627536e03c073c618c5d2ae629dcced831150fda80fb603a",
}
FILES = [
    File(path, f"{_REPOSITORY}/{path}", sha256, _LICENCE)
    for path, sha256 in (
        (EVALUATION.format(set=name) if name else PUBLISHED, sha256)
        for name, sha256 in _CLAIMS.items()
    )
]
FILES += [
    File(  # 3 MB
        "corpus.jsonl",
        "https://scifact.s3-us-west-2.amazonaws.com/release/latest/data.tar.gz",
        "11c621288d41ac144d29b13b0f8503b3820b7d6e8b1f6ff24dff335c196d76be",
        "ODC-By 1.0 (abstracts of S2ORC)",
    ),
    File(  # 1.7 GB, read as it is packed
        "wiki-pages.zip",
        "https://fever.ai/download/fever/wiki-pages.zip",
        "4b06d95da6adf7fe02d2796176c670dacccb21348da89cba4c50676ab99665f2",
        "CC BY-SA 3.0 (Wikipedia)",
    ),
    File(  # 2.2 GB
        "wiki_wo_links.db",
        "https://nlp.cs.unc.edu/data/hover/wiki_wo_links.db",
        "c37ee397916ec0bffacfe8902db454a5cda88a7a188409217b2e15231fe5ee2f",
        "CC BY-SA 4.0 (Wikipedia)",
    ),
    File(  # 10.4 GB, 53.5 GB unpacked
        "feverous_wikiv1.db",
        "https://fever.ai/download/feverous/feverous-wiki-pages-db.zip",
        "",
        "CC BY-SA 3.0 (Wikipedia)",
    ),
]


def fetch(p: VeriParams) -> Path:
    """Download what is missing of FILES and index each set's corpus.

    Returns the indexes' folder. A killed call continues where it was: a part of a file
    is kept, and an index is complete or not there. Raises DataError, with what to do,
    for a file that can't be had.
    """
    folder = ROOT / p.claims_path
    for file in FILES:
        print(f"{file.path}: {file.licence}\n  {file.url}", flush=True)
        download(file, folder)
    return build_indexes(folder)


def build_indexes(folder: Path) -> Path:
    """Index the corpus of each set in `folder`; returns the indexes' folder."""
    indexes = folder / INDEXES
    first: dict[str, str] = {}  # corpus → the set that has its index
    for name, corpus in benchmarks.CORPUS_OF.items():
        index = indexes / first.setdefault(corpus, name)
        if not index.exists():
            path = folder / corpus
            path = path if path.exists() else path.with_name(f"{corpus}.zip")
            build_index(benchmarks.entries(corpus, path), index, corpus)
        if index.name != name and not (indexes / name).exists():
            (indexes / name).symlink_to(index.name)
    return indexes


def download(file: File, folder: Path) -> Path:
    """The path of a file in `folder`, downloaded and unpacked if it is not there."""
    path = folder / file.path
    if path.exists():
        return path
    archive = path.with_name(file.url.rpartition("/")[2])
    part = archive.with_name(f"{archive.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not archive.exists():
            stop = tenacity.stop_after_attempt(ATTEMPTS)
            serving.create_retrying(stop)(_download_rest, file.url, part)
            digest = file_checksum(part)
            if file.sha256 and digest != file.sha256:
                part.unlink()
                raise DataError(
                    f"{file.url}: SHA-256 {digest}, not {file.sha256}: another version,"
                    " or damaged on its way; run the command again, or see to the "
                    "source"
                )
            part.replace(archive)
        if archive != path:
            print(f"  unpacking {archive.name}", flush=True)
            _unpack(archive, path)
            archive.unlink()
    except (httpx.HTTPError, OSError, *UNPACK_ERRORS) as error:
        if isinstance(error, UNPACK_ERRORS):
            archive.unlink()
        raise DataError(
            f"{file.url}: {type(error).__name__}: {error}; run the command again: it "
            f"continues where it ended; or put the file at {archive} yourself"
        ) from None
    return path


def _download_rest(url: str, part: Path) -> None:
    """Append to `part` what is missing of the file."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    headers["Accept-Encoding"] = "identity"
    with httpx.stream(
        "GET", url, headers=headers, follow_redirects=True, timeout=SILENCE_S
    ) as reply:
        if reply.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing
        reply.raise_for_status()
        if reply.status_code != httpx.codes.PARTIAL_CONTENT:
            have = 0
        total = have + int(reply.headers.get("Content-Length", 0))
        bar = progress_bar(total, part.stem, "B")
        with part.open("ab" if have else "wb") as file, bar:
            bar.unit_scale = True
            bar.update(have)
            for block in reply.iter_raw():
                file.write(block)
                bar.update(len(block))


def _unpack(archive: Path, path: Path) -> None:
    """Write the archive's file of the path's name."""
    part, zipped = path.with_name(f"{path.name}.part"), zipfile.is_zipfile(archive)
    open_archive: Any = zipfile.ZipFile if zipped else tarfile.open
    with open_archive(archive) as packed:
        names = packed.namelist() if zipped else packed.getnames()
        member = next((name for name in names if Path(name).name == path.name), "")
        if not member:
            raise DataError(f"{archive}: holds no {path.name}; see to the source")
        opened = packed.open(member) if zipped else packed.extractfile(member)
        with opened as source, part.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    part.replace(path)
