"""`stretto trace view`: a recording as one HTML file that holds the viewer and the data, and needs nothing else.

The viewer is built from `viewer/` by npm; a package has it beside this module, a checkout in `viewer/dist/`.
"""

from __future__ import annotations

import base64
import contextlib
import webbrowser
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, Any
from urllib.parse import quote

import numpy as np
import typer

from stretto.cli.flags import PART_FLAGS, PART_PANEL, flag
from stretto.cli.output import examples, printable, progress
from stretto.cli.working import Working
from stretto.drafts import drafted
from stretto.errors import InvalidArgument, InvalidUsage, SystemCallError
from stretto.trace.align import clocks_of
from stretto.trace.bundle import SUFFIX, encode
from stretto.trace.convert import default_output
from stretto.trace.link import link_to
from stretto.trace.model import EventType, Recording
from stretto.trace.operations import join
from stretto.trace.part import Part, cut
from stretto.trace.reader import load

# The page's empty element for the data. The template holds it once: only what lies between the tags changes.
_OPEN = b'<script type="application/octet-stream" id="recording">'
_CLOSE = b"</script>"
# A browser's string holds 512 MB; this many events stay far below, and draw as fast as a hundred do.
MOST_EVENTS = 8_000_000
_CHUNK = 3 << 20


def template() -> bytes:
    """The built viewer. Raises `InvalidUsage` where it has not been built."""
    built = Path(__file__).parents[3] / "viewer" / "dist" / "viewer.html"
    beside = Path(__file__).with_name("viewer.html")
    for file in (built, beside):
        if file.is_file():
            page = file.read_bytes()
            if page.count(_OPEN + _CLOSE) != 1:
                raise InvalidUsage(f"{file} is not the page that this version of stretto fills: build it again")
            return page
    raise InvalidUsage("the viewer has not been built: `make viewer` in the checkout builds it (it needs npm)")


def on_gpu_clocks(recording: Recording) -> Recording:
    """The recording with its kernels at the time that the GPU stamped, brought to the recording's clock, where that can
    be known. When the host saw them stays in the columns `seen_start` and `seen_stop`. How well the GPU's clock is
    known, in ns, is in `clock_error`, and how well against the other GPUs' in `gpu_error`: clocks of GPUs that did the
    same operations are often known better to each other than to any host.
    """
    spans = dict(recording.spans)
    context, start, stop = (spans[name].astype(np.int64) for name in ("context", "start", "stop"))
    began, ended = spans["gpu_start"].astype(np.int64), spans["gpu_stop"].astype(np.int64)
    stamped = np.isin(spans["type"], (EventType.KERNEL_CH, EventType.KERNEL_PHASE))
    stamped &= (context >= 0) & (began > 0) & (ended >= began)
    if not stamped.any():
        return recording
    alignment = clocks_of(recording, join(recording))
    error = alignment.gpu_host_error[alignment.gpu_of[context]]
    rows = np.flatnonzero(stamped & np.isfinite(error))
    linked = bool((alignment.gpu_home[alignment.gpu_of[context[rows]]] == 0).all())
    among = alignment.gpu_error[alignment.gpu_of[context]] if linked else error
    seen_start, seen_stop, known, ordered = (np.full(len(start), -1) for _ in range(4))
    seen_start[rows], seen_stop[rows] = start[rows], stop[rows]
    known[rows], ordered[rows] = np.ceil(error[rows]), np.ceil(among[rows])
    start[rows] = alignment.gpu_time(context[rows], began[rows])
    stop[rows] = alignment.gpu_time(context[rows], ended[rows])
    spans |= {"start": start, "stop": stop, "seen_start": seen_start, "seen_stop": seen_stop}
    spans |= {"clock_error": known, "gpu_error": ordered}
    order = np.argsort(start, kind="stable")
    row_of = np.empty(len(order), np.int64)
    row_of[order] = np.arange(len(order))
    owner = recording.states["span"].astype(np.int64)
    states = dict(recording.states)
    states["span"] = np.where(owner >= 0, row_of[owner], -1) if len(order) else owner
    return replace(recording, spans={name: values[order] for name, values in spans.items()}, states=states)


def _types(names: list[str]) -> frozenset[int]:
    known = {kind.name.replace("_", "").lower(): int(kind) for kind in EventType}
    unknown = [name for name in names if name.replace("_", "").lower() not in known]
    if unknown:
        raise InvalidArgument(f"no event type {', '.join(unknown)}: there are {', '.join(sorted(known))}")
    return frozenset(known[name.replace("_", "").lower()] for name in names)


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that has its name only once it is whole."""
    try:
        with drafted(path) as draft, draft.open("wb") as file:
            yield file
    except OSError as error:
        raise SystemCallError(f"cannot write {path}: {error.strerror or error}") from error


def write_page(bundle: bytes, path: Path, page: bytes | None = None) -> None:
    """The viewer with this bundle in it. Base64 holds nothing that means anything to HTML."""
    head, tail = (template() if page is None else page).split(_OPEN + _CLOSE)
    with _whole(path) as file:
        file.write(head + _OPEN)
        for at in range(0, len(bundle), _CHUNK):
            file.write(base64.b64encode(bundle[at : at + _CHUNK]))
        file.write(_CLOSE + tail)


def write(recording: Recording, path: Path, title: str = "") -> None:
    """A page, or with the suffix .stretview the bare bundle, to be dropped on any such page."""
    if len(recording.spans["start"]) > MOST_EVENTS:
        raise InvalidArgument(
            f"{len(recording.spans['start']):,} events are more than a page should hold ({MOST_EVENTS:,}): choose a "
            "part with --from and --to, or leave types out with --without ProxyStep"
        )
    page = None if path.suffix == SUFFIX else template()
    bundle = encode(recording, title)
    if page is not None:
        write_page(bundle, path, page)
        return
    with _whole(path) as file:
        file.write(bundle)


def _open_page(path: Path, place: str = "") -> None:
    if not webbrowser.open(path.resolve().as_uri() + place):
        progress.print(f"no browser to open; open {path} yourself", markup=False)


def _empty(path: Path, open_page: bool) -> None:
    """The page that comes with the package, as it is."""
    if path.suffix == SUFFIX:
        raise InvalidArgument(f"{path}: without a recording there is a page, and no data")
    page = template()
    with _whole(path) as file:
        file.write(page)
    progress.print(f"a page to drop recordings on, {len(page) / 1e3:.0f} KB: {path}", markup=False)
    if open_page:
        _open_page(path)


def _place(recording: Recording, worst: bool, operation: str | None) -> str:
    """What stands behind the page's address (viewer/src/hash.ts)."""
    parts = ["worst=1"] if worst else []
    if operation is not None:
        parts.append(f"op={quote(link_to(recording, operation), safe=',')}")
    return f"#{'&'.join(parts)}" if parts else ""


SETTINGS: dict[str, Any] = {
    "epilog": examples(
        "stretto trace view run1 --open",
        "stretto trace view run1 --open --worst",
        "stretto trace view run1 --open --op 0x1194ee3f6a2b70c5,AllReduce,17",
        "stretto trace view run1 --from 2 --to 2.5 -o part.html",
        "stretto trace view -o viewer.html",
    )
}


def view(
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[INPUT]...", help="A folder with a recording, or files of one (*.rec)."),
    ] = None,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The page; else beside the recording.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    worst: Annotated[bool, typer.Option("--worst", help="At the list of the worst operations.")] = False,
    operation: Annotated[
        str | None,
        typer.Option("--op", metavar="COMM,FUNCTION,NUMBER", help="At one operation, by its link in a report."),
    ] = None,
    begin: Annotated[float | None, PART_FLAGS["begin"]] = None,
    end: Annotated[float | None, PART_FLAGS["end"]] = None,
    without: Annotated[
        list[str] | None,
        flag(PART_PANEL, "--without", metavar="TYPE", help="Leave a type of event out; may be repeated."),
    ] = None,
) -> None:
    """Make one HTML page of a recording: a timeline of all ranks, to open in any browser, with no network.

    With the suffix .stretview the output is the data alone, to be dropped on any such page. Without INPUT it is a page
    without a recording, which waits for one to be dropped.
    """
    if not inputs:
        parts = {"--worst": worst or None, "--op": operation, "--from": begin, "--to": end, "--without": without}
        for name in (name for name, one in parts.items() if one is not None):
            raise InvalidArgument(f"{name} shows a part of a recording: name its folder or files")
        return _empty(output or Path("viewer.html"), open_page)
    path = output if output is not None else default_output(inputs, ".html")
    if path.is_dir() or path.suffix == ".rec":
        raise InvalidArgument(f"{path} is no place for a page: name another file with --output")
    left_out, part = _types(without or []), Part.of_seconds(begin, end)
    with Working("reading") as working:
        recording = load(inputs, part=part)
        events = len(recording.spans["start"])
        recording = cut(recording, part, left_out)
        shown = len(recording.spans["start"])
        place = _place(recording, worst, operation)
        working.doing, working.done = "aligning clocks", shown
        recording = on_gpu_clocks(recording)
        working.doing = "writing"
        write(recording, path, inputs[0].resolve().name if len(inputs) == 1 else f"{len(inputs)} files")
    for note in recording.quality.notes:
        progress.print(printable(f"stretto trace view: {note}"), markup=False, soft_wrap=True)
    count = f"{shown:,} of {events:,}" if shown != events else f"{shown:,}"
    progress.print(f"{count} events, {path.stat().st_size / 1e6:.1f} MB: {path}{place}", markup=False)
    if open_page:
        _open_page(path, place)
    return None
