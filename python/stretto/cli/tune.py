"""`stretto tune`: measures which algorithm is fastest at which size here, and writes the planner's table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stretto.cli.output import JsonOption, console, emit, progress, size, size_text, stop, table

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce")


def _sizes(text: str, quick: bool) -> list[int]:
    """Sizes from "64:16M"."""
    from stretto.bench.workload import sweep

    smallest, colon, largest = text.partition(":")
    try:
        return sweep(size(smallest), size(largest if colon else smallest), 16 if quick else 4)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _measure(ranks: int, threads: bool, collectives: list[str], sizes: list[int], quick: bool) -> list[dict[str, Any]]:
    """The entries of the table, and the rows for people printed as they are found."""
    from stretto.tuning.ranks import running
    from stretto.tuning.search import Search
    from stretto.tuning.table import entry

    def say(text: str) -> None:
        progress.print(f"stretto tune: {text}")

    entries = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        running(ranks, threads, sizes[-1], say) as job,
        Progress(*columns, console=progress, transient=True) as bar,
    ):
        task = bar.add_task("tuning", total=len(collectives) * len(sizes))
        search = Search(job, ranks, 3 if quick else 7, 4 if quick else 15, say)
        for collective in collectives:
            winners = []
            for bytes in sizes:
                bar.update(task, description=f"{collective} {size_text(bytes)}")
                winners.append(search.measure(collective, bytes))
                bar.advance(task)
            found = [one for one in winners if one is not None]
            if found:
                rows = [one.row() for one in found]
                entries.append(entry(collective, ranks, search.machine, rows) | {"winners": found})
    return entries


def _show(entries: list[dict[str, Any]], path: Path) -> None:
    rows = table("collective", "bytes", "fastest", "µs", "planner", "µs", right=(1, 3, 5))
    for one in entries:
        for winner in one["winners"]:
            changed = winner.best is not winner.model
            rows.add_row(
                one["collective"],
                size_text(winner.bytes),
                winner.best.name,
                f"{winner.best.microseconds:.2f}",
                winner.model.name if changed else "the same",
                f"{winner.model.microseconds:.2f}" if changed else "",
                style="bold" if changed else None,
            )
    console.print(rows)
    console.print(f"Written to {path}. Use it:")
    console.print(f"export STRETTO_TABLE={path}", soft_wrap=True)


def tune(
    ranks: Annotated[int, typer.Option("--ranks", "-n", min=2, max=64, help="How many ranks.")] = 2,
    threads: Annotated[bool, typer.Option("--threads", help="Ranks as threads of one process.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes, fewer and shorter turns.")] = False,
    collective: Annotated[
        list[str] | None,
        typer.Option("--collective", help=f"Only this one; again for more. All: {', '.join(COLLECTIVES)}."),
    ] = None,
    sizes: Annotated[str, typer.Option("--sizes", metavar="FROM:TO", help="Sizes, of the larger buffer.")] = "64:16M",
    output: Annotated[
        Path | None, typer.Option("--output", help="The table (default: ~/.cache/stretto/table-HOST.json).")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Measure each algorithm at each size, in turns, and write the fastest into the planner's table.

    Every result is verified. Where nothing is faster than the planner's own choice by more than 3 %, in most
    turns, the choice stays. Entries that the file has for other cases (other numbers of ranks) stay in it.
    """
    from stretto.bench.job import JobError
    from stretto.tuning import table as tables
    from stretto.tuning.search import WrongResult

    unknown = [one for one in collective or [] if one not in COLLECTIVES]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]}: choose from {', '.join(COLLECTIVES)}")
    path = output or tables.default_path()
    before = tables.read(path)
    try:
        entries = _measure(ranks, threads, collective or list(COLLECTIVES), _sizes(sizes, quick), quick)
    except (JobError, WrongResult) as error:
        stop(f"tune: {error}", 1)
        return
    except KeyboardInterrupt:
        stop("tune: interrupted; all ranks are ended and no table was written", 130)
        return
    plain = [{key: value for key, value in one.items() if key != "winners"} for one in entries]
    document = tables.document(tables.merge(before, plain))
    try:
        tables.write(path, document)
    except OSError as error:
        stop(f"tune: cannot write {path}: {error.strerror}", 1)
    emit(document, json, lambda: _show(entries, path))
