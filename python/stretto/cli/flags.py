"""A command whose options are the fields of a dataclass, each declared as one flag."""

import copy
import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any

import typer

Command = Callable[..., None]
MOST_SECONDS = 1e9  # thirty years, where no clock overflows


def flag(panel: str | None, *names: str, help: str, **more: Any) -> Any:
    """One, shown under the heading `panel`."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


# The part of a recording that a command of `stretto trace` shows.
PART_PANEL = "What is shown"
PART_FLAGS: dict[str, Any] = {
    "begin": flag(PART_PANEL, "--from", metavar="SECONDS", help="Only what ends after."),
    "end": flag(PART_PANEL, "--to", metavar="SECONDS", help="Only what starts before."),
}


def _finite(text: str) -> float:
    """Of a command line; "nan" and "inf" are floats for Python too."""
    number = float(text)
    if not math.isfinite(number):
        raise typer.BadParameter(f"{text}: a number")
    return number


def _declared(field: "dataclasses.Field[Any]", flags: dict[str, Any]) -> Any:
    """The flag of a field. A float without limits of its own is finite at least."""
    found = flags[field.name]
    if field.type is not float or found.min is not None or found.parser is not None:
        return found
    found = copy.copy(found)
    found.parser = _finite
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
