"""A command whose options are the fields of a dataclass, each declared as one flag."""

import copy
import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any, get_args

import typer

Command = Callable[..., None]
MOST_SECONDS = 1e9  # thirty years, where no clock overflows


def flag(panel: str | None, *names: str, help: str, **more: Any) -> Any:
    """One, shown under the heading `panel`."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def finite(number: float | None) -> float | None:
    """A callback for every option that takes a float: "nan" and "inf" are floats for Python too, and Typer before 0.29
    takes "nan" for a number within any limits.
    """
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number}: must be a finite number")
    return number


# The part of a recording that a command of `stretto trace` shows.
PART_PANEL = "What is shown"
PART_FLAGS: dict[str, Any] = {
    "begin": flag(PART_PANEL, "--from", metavar="SECONDS", callback=finite, help="Only what ends after."),
    "end": flag(PART_PANEL, "--to", metavar="SECONDS", callback=finite, help="Only what starts before."),
}


def _declared(field: "dataclasses.Field[Any]", flags: dict[str, Any]) -> Any:
    """The flag of a field. A float is finite, unless the flag has a parser, which judges what it takes."""
    found = flags[field.name]
    if float not in (field.type, *get_args(field.type)) or found.parser is not None:
        return found
    found = copy.copy(found)
    found.callback = finite
    return found


def with_flags(options: type, flags: dict[str, Any], *, context: bool = False) -> Callable[[Command], Command]:
    """Gives a function of keywords one parameter for each field, as typer expects to find them, and `context` where
    that is wanted. The types of fields must be real ones, not texts.
    """

    def give(function: Command) -> Command:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter("context", kind, annotation=typer.Context)] if context else []
        for field in dataclasses.fields(options):
            annotation = Annotated[field.type, _declared(field, flags)]  # type: ignore[name-defined]
            parameters.append(inspect.Parameter(field.name, kind, default=field.default, annotation=annotation))
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        function.__annotations__ = {one.name: one.annotation for one in parameters}
        return function

    return give
