"""Options that commands of the command line share."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import typer

from factkit.run import params
from factkit.run.arms import find_papers
from factkit.run.params.reading import read_value

Name: Any = Literal[tuple(find_papers())]
ALL = "all"
NameOrAll: Any = Literal[(*find_papers(), ALL)]
FIRST = next(iter(find_papers()))
Paper = Annotated[Name, typer.Argument()]
Papers = Annotated[NameOrAll, typer.Argument()]
Profile = Annotated[str, typer.Option(help=" | ".join(params.PROFILES))]
Variant = Annotated[
    str, typer.Option(help="Of the profile: retrieval, reasoning … (params/<profile>).")
]
Jobs = Annotated[
    int,
    typer.Option(min=1, help="Runs at a time; as many as cores have one thread each."),
]
Output = Annotated[str, typer.Option(help="Folder of the runs, from the root.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="A parameter's value, as key=value.")
]


@dataclass(frozen=True)
class Setting:
    """The options that name the parameters of a run."""

    profile: Profile
    variant: Variant = ""
    output_dir: Output = "outputs"
    values: Set = None

    def load(self, paper: str) -> Any:
        """The checked parameters of a paper."""
        values = {"output_dir": self.output_dir} | read_set(self.values)
        return params.load(paper, self.profile, values, self.variant)


@dataclass(frozen=True)
class Chosen:
    """The options that choose the runs of a sweep."""

    arms: Annotated[str, typer.Option(help="Space-separated; default: all.")] = ""
    seeds: Annotated[str, typer.Option(help="Space-separated; default: YAML's.")] = ""
    worlds: Annotated[
        int, typer.Option(min=1, help="Fact worlds or splits, the main one first.")
    ] = 1

    def variants(self, paper: str, setting: Setting, alone: bool) -> list[str]:
        """The variants to sweep: the setting's own, then its other worlds or splits;
        of `all` each but a user's own data, the main setting last.

        alone: no other paper is swept. Raises ParamError if there are parameter files
        for fewer; a paper that has none is swept in one world beside others.
        """
        if setting.variant == ALL:
            if self.worlds > 1:
                raise params.ParamError("--variant all has all worlds: omit --worlds")
            names = [*params.variants(paper, setting.profile), ""]
            loaded = {n: replace(setting, variant=n).load(paper) for n in names}
            return [n for n, p in loaded.items() if not p.has_own_data]
        others = params.other_worlds(paper, setting.profile, setting.variant)
        if self.worlds > 1 + len(others) and (others or alone):
            raise params.ParamError(
                f"--worlds {self.worlds}: params/{setting.profile} has files for "
                f"{1 + len(others)} of {paper}"
            )
        return [setting.variant, *others[: self.worlds - 1]]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of `Setting` and `Chosen` as options, in place of the
    parameters whose defaults are such objects."""
    parameters = dict(inspect.signature(command).parameters)
    groups = {
        name: parameters.pop(name).default
        for name, parameter in list(parameters.items())
        if isinstance(parameter.default, Setting | Chosen)
    }

    @functools.wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            own = {option: values.pop(option) for option in vars(group)}
            values[name] = type(group)(**own)
        command(**values)

    for group in groups.values():
        for name, default in vars(group).items():
            parameters[name] = inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=type(group).__annotations__[name],
            )
    vars(call)["__signature__"] = inspect.Signature(list(parameters.values()))
    call.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    return call


def read_set(options: Sequence[str] | None) -> dict[str, Any]:
    """The values of --set options; text in quotes is text."""
    values: dict[str, Any] = {}
    for option in options or ():
        key, equals, text = option.partition("=")
        if not equals or key in values:
            raise params.ParamError(f"--set {key}: must be key=value, each key once")
        if key in ("profile", "variant"):
            raise params.ParamError(f"--set {key}: give --{key}, which names the file")
        quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
        try:
            values[key] = text[1:-1] if quoted else read_value(text)
        except ValueError as error:
            raise params.ParamError(f"--set {key}: {error}") from None
    return values
