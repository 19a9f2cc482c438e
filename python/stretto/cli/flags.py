"""A command whose options are the fields of a dataclass, each declared as one flag."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

Command = Callable[..., None]


def flag(panel: str | None, *names: str, help: str, **more: Any) -> Any:
    """One, shown under the heading `panel`."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def with_flags(options: type, flags: dict[str, Any], *, context: bool = False) -> Callable[[Command], Command]:
    """Gives a function of keywords one parameter for each field, as typer expects to find them, and `context` where
    that is wanted. The types of fields must be real ones, not texts.
    """

    def give(function: Command) -> Command:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter("context", kind, annotation=typer.Context)] if context else []
        for field in dataclasses.fields(options):
            annotation = Annotated[field.type, flags[field.name]]  # type: ignore[name-defined]
            parameters.append(inspect.Parameter(field.name, kind, default=field.default, annotation=annotation))
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        function.__annotations__ = {one.name: one.annotation for one in parameters}
        return function

    return give
