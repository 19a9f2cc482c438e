"""`stretto audit`: what is wrong with this machine, and why."""

import importlib.util
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from stretto.cli.audit_hosts import as_ranks, over_shells, ranks_of_launcher
from stretto.cli.flags import flag, with_flags
from stretto.cli.hosts import REMOTE_SHELL
from stretto.cli.output import check_ranks, console, emit, examples, expect_writable, nearest, stop, table
from stretto.cli.reach import HOSTS_PANEL, REACH_FLAGS, refuse_reach_options
from stretto.cli.working import steps

_WHAT, _OUTPUT, _COMPARED = "What is looked at", "What comes out", "What it is compared with"
_TITLE = "stretto audit"


@dataclass(frozen=True)
class Given:
    """What the command line says."""

    others: list[Path] | None = None
    ranks: int = 0
    quick: bool = False
    full: bool = False
    only: list[str] | None = None
    skip: list[str] | None = None
    platform: bool = False
    python: list[Path] | None = None
    program: list[Path] | None = None
    library: Path | None = None
    compare: Path | None = None
    read: Path | None = None
    hosts: str | None = None
    env: list[str] | None = None
    remote_shell: str = REMOTE_SHELL
    remote_python: str = sys.executable
    reach: float = 30.0
    list: bool = False
    verbose: bool = False
    markdown: Path | None = None
    html: Path | None = None
    json: str | None = None


FLAGS: dict[str, Any] = {
    "others": typer.Argument(help="After --compare OLD.json: more audits, of other machines.", metavar="[FILE]..."),
    "ranks": flag(_WHAT, "--ranks", "-n", metavar="N", min=0, help="CPU ranks; 0: two to four, by cores."),
    "quick": flag(_WHAT, "--quick", help="About 15 s instead of a minute: fewer repetitions."),
    "full": flag(_WHAT, "--full", help="Up to 10 minutes: more sizes, a thousand communicators."),
    "only": flag(_WHAT, "--only", metavar="NAME", help="Only this section or check (--list); again for more."),
    "skip": flag(_WHAT, "--skip", metavar="NAME", help="Not this section or check; again for more."),
    "platform": flag(_WHAT, "--platform", help="Only what the platform costs, with the table of it all."),
    "python": flag(_WHAT, "--python", metavar="FILE", help="Another Python whose libraries to look at; again."),
    "program": flag(_WHAT, "--program", metavar="FILE", help="A program whose libnccl to look for; again."),
    "library": flag(_WHAT, "--library", metavar="FILE", help="The libnccl.so.2 that programs are to get."),
    "compare": flag(
        _COMPARED,
        "--compare",
        metavar="OLD.json",
        help="Say what changed since then; with more files behind it, which machine differs from the others.",
    ),
    "read": flag(_COMPARED, "--from", metavar="FILE", help="Show this audit's JSON instead of measuring."),
    "hosts": flag(
        HOSTS_PANEL,
        "--hosts",
        metavar="A,B,...",
        help="Audit these hosts, what lies between them, and in what they differ; reached by ssh without a password.",
    ),
    **REACH_FLAGS,
    "list": flag(_OUTPUT, "--list", help="Show the table of all checks, and end."),
    "verbose": flag(_OUTPUT, "--verbose", "-v", help="Show also what is as it should be."),
    "markdown": flag(_OUTPUT, "--markdown", metavar="FILE", help="Write the whole page as Markdown."),
    "html": flag(_OUTPUT, "--html", metavar="FILE", help="Write it as one HTML file with plots (needs matplotlib)."),
    "json": flag(_OUTPUT, "--json", metavar="FILE", help="Write findings and numbers as JSON; - is stdout."),
}
SETTINGS: dict[str, Any] = {
    "epilog": examples(
        "stretto audit",
        "stretto audit --quick --json today.json",
        "stretto audit --platform",
        "stretto audit --only environment --python ~/env/bin/python",
        "stretto audit --compare yesterday.json --html audit.html",
        "stretto audit --from a.json --compare b.json c.json d.json",
        "stretto audit --hosts node1,node2 --html hosts.html",
    )
}


@with_flags(Given, FLAGS, context=True)
def audit(context: typer.Context, **flags: Any) -> None:
    """Find out what is wrong with this machine, in a minute: each finding with its likely cause and the next step.

    It looks at the libraries that programs here would load, the variables, the machine's limits; checks data between
    ranks; and measures latency, bandwidth, start-up, memory and the platform, each against what this machine's own
    pieces cost in the same run. Nothing is changed, and nothing needs root.

    With --hosts, and as ranks of mpirun, torchrun or srun on several hosts, each host is audited; then the network
    between them is measured, and the hosts are compared with each other. A host that cannot be reached is a finding.

    The exit status is 0 when nothing is found above a note, 3 when the gravest finding is a warning, 4 when it is an
    error, 1 when the audit itself fails.
    """
    from stretto.audit import run as running
    from stretto.audit.finding import Severity

    given = _given(flags)
    checks = _chosen(given)
    if given.list:
        _show_list(checks)
        raise typer.Exit
    _check(given, context)
    earlier = _earlier(given)
    for name, one in earlier:
        if "hosts" in one:
            stop(f"audit: --compare: {name} is an audit of several hosts; they are compared with each other in itself")
    try:
        document = _read(given.read) if given.read is not None else _measure(given, checks)
    except KeyboardInterrupt:
        stop("audit: interrupted; all ranks are ended", 130)
        return
    if "hosts" in document:
        if earlier:
            stop("audit: --compare: this is an audit of several hosts; they are compared with each other in itself")
        _report_hosts(given, document)
    else:
        _report(given, document, earlier)
    raise typer.Exit(running.STATUS[Severity[document["verdict"].upper()]])


def _given(flags: dict[str, Any]) -> Given:
    given = Given(**flags)
    if not given.platform:
        return given
    if given.only:
        stop("audit: --platform and --only: give one of them; --only platform is the same without the table")
    return replace(given, only=["platform"], verbose=True)


def _chosen(given: Given) -> Any:
    from stretto.audit import table as checks
    from stretto.audit.finding import ALL, SECTIONS

    try:
        return checks.checks(given.only, given.skip)
    except KeyError as unknown:
        name = str(unknown.args[0])
        known = [*SECTIONS, *(one.id for one in ALL)]
        stop(f"audit: there is no section or check {name}{nearest(name, known)} (stretto audit --list)")


def _show_list(checks: Any) -> None:
    rows = table("check", "what is looked at", "gravest")
    for one in checks:
        rows.add_row(one.id, one.title, one.worst.word)
    console.print(rows)


def _check(given: Given, context: typer.Context) -> None:
    """What cannot be done is said before a minute's work."""
    if given.hosts is None:
        refuse_reach_options("audit", context)
    elif given.compare is not None or given.read is not None:
        stop("audit: --hosts compares these hosts with each other; --compare and --from are for what is stored")
    if given.ranks:
        check_ranks("audit", given.ranks, 2)
    if given.quick and given.full:
        stop("audit: --quick and --full: give one of them")
    if given.others and given.compare is None:
        stop(f"audit: {given.others[0]}: files to compare with stand behind --compare OLD.json")
    for path in (given.library, *(given.python or ()), *(given.program or ())):
        if path is not None and given.hosts is None and not path.is_file():
            stop(f"audit: there is no file {path}")
    for target in (given.markdown, given.html, given.json):
        if target is not None and str(target) != "-":
            expect_writable("audit", target)
    if given.html is not None and importlib.util.find_spec("matplotlib") is None:
        stop("audit: --html needs matplotlib: pip install matplotlib")


def _read(path: Path) -> dict[str, Any]:
    from stretto.audit import compare

    try:
        return compare.read(path)
    except compare.NoAudit as problem:
        stop(f"audit: {problem}")
    raise AssertionError("unreachable")


def _earlier(given: Given) -> list[tuple[str, dict[str, Any]]]:
    paths = [] if given.compare is None else [given.compare, *(given.others or [])]
    return [(path.stem, _read(path)) for path in paths]


def _measure(given: Given, checks: Any) -> dict[str, Any]:
    from stretto.audit.context import LEVELS, Context
    from stretto.audit.finding import BETWEEN_HOSTS
    from stretto.audit.member import usual_ranks
    from stretto.audit.run import run
    from stretto.bench.job import terminable

    name_of_level = "quick" if given.quick else "full" if given.full else "default"
    between = [one for one in checks if one.section == BETWEEN_HOSTS]
    if given.hosts is not None:
        return over_shells(given, name_of_level, between)
    if ranks_of_launcher() > 1:
        return as_ranks(given, name_of_level, between)
    checks = [one for one in checks if one not in between]
    if not checks:
        stop("audit: there is one host here, and nothing between hosts to look at (--hosts A,B)")
    level = LEVELS[name_of_level]
    with terminable(), steps(len(checks)) as step:
        name = ""

        def begin(check: str) -> None:
            nonlocal name
            name = check
            step(check, 1)

        context = Context(
            level=level,
            more_pythons=tuple(given.python or ()),
            programs=tuple(given.program or ()),
            library=given.library,
            say=lambda doing: step(f"{name}: {doing}", 0),
        )
        context.ranks = given.ranks or usual_ranks()
        return run(context, checks, begin)


def _report(given: Given, document: dict[str, Any], earlier: list[tuple[str, dict[str, Any]]]) -> None:
    from stretto.audit import blocks, compare

    mine = given.read.stem if given.read is not None else "this"
    comparison = compare.compare([(mine, document), *earlier]) if earlier else None
    if comparison is not None:
        document = {
            **document,
            "compared": {"with": [name for name, _ in earlier], "differences": comparison.differences},
        }
    pages = blocks.blocks(document, comparison), blocks.screen(document, comparison, given.verbose)
    _write(given, document, *pages, [document])


def _report_hosts(given: Given, document: dict[str, Any]) -> None:
    from stretto.audit import blocks

    audits = [host["audit"] for host in document["hosts"] if host["audit"] is not None]
    pages = blocks.blocks_of_hosts(document), blocks.screen_of_hosts(document, given.verbose)
    _write(given, document, *pages, [document, *audits])


def _write(given: Given, document: dict[str, Any], whole: Any, screen: Any, drawn: list[dict[str, Any]]) -> None:
    """`drawn`: the documents whose plots are shown."""
    from stretto.audit import page

    written = []
    if given.markdown is not None:
        written.append((given.markdown, page.markdown(whole, _TITLE)))
    if given.html is not None:
        from stretto.audit.plots import draw

        written.append((given.html, page.html(whole, _TITLE, [one for audit in drawn for one in draw(audit)])))
    for path, text in written:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as problem:
            stop(f"audit: cannot write {path}: {problem.strerror}", 1)
    emit(document, given.json, lambda: page.show(screen, console))
