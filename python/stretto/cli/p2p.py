"""`stretto p2p`: bytes from one host to another."""

import contextlib
import os
import shlex
import socket
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import typer

from stretto.bench.drivers import Missing, find_driver
from stretto.bench.rows import machine
from stretto.cli.flags import flag, with_flags
from stretto.cli.output import console, emit, examples, expect_writable, progress, size, stop, table
from stretto.p2p import report
from stretto.p2p.driver import Driver, Failed
from stretto.p2p.measure import WAYS, Implementation, Plan, opened, sweep
from stretto.p2p.openmpi import openmpi

PORT = 18515
SETTINGS = {
    "epilog": examples(
        "stretto p2p",
        "stretto p2p serve --nics eth0,eth1",
        "stretto p2p node2 --nics eth0,eth1 --flows 4 --log p2p.md",
    )
}
_SERVE = "serve"
_SIZES = "Sizes and repetition"
_WAY = "How bytes go"
_PEERS = "Whom to compare with"
_SERVE_PANEL = "Of serve"
_OUTPUT = "What comes out"
_START_SECONDS = 60.0
_PORTS = 65536


@dataclass(frozen=True)
class Options:
    """Every field has one flag, declared in FLAGS."""

    host: str = ""
    operation: str = "send"
    ways: str = ",".join(WAYS)
    nics: str | None = None
    flows: int = 1
    in_flight: int = 8
    chunk: str | None = None
    window: str | None = None
    least: str = "4K"
    most: str = "256M"
    factor: int = 4
    rounds: int = 7
    budget_ms: float = 100.0
    floor: str = "1,2,4,8"
    peers: str = "all"
    port: int = PORT
    bind: str = "0.0.0.0"
    log: Path | None = None
    plot: Path | None = None
    json: str | None = None

    def environment(self, nics: str | None) -> dict[str, str]:
        """Of a process that measures."""
        variables = {
            "NCCL_SOCKET_IFNAME": nics,
            "STRETTO_NET_CHUNK": self.chunk,
            "STRETTO_NET_WINDOW_MAX": self.window,
            "STRETTO_NET_FLOWS": str(self.flows),
        }
        return {**os.environ, **{name: value for name, value in variables.items() if value}}


FLAGS: dict[str, Any] = {
    "host": typer.Argument(
        metavar="[serve|HOST[:PORT]]",
        help="serve: answer others. HOST: where `stretto p2p serve` runs. Nothing: both ends on this host.",
        show_default=False,
    ),
    "operation": flag(_WAY, "--operation", metavar="KIND", help="send: send and receive."),
    "ways": flag(_WAY, "--ways", metavar="LIST", help="Of there (one way), both (ways) and pingpong."),
    "nics": flag(_WAY, "--nics", metavar="LIST", help="This host's network interfaces, as NCCL_SOCKET_IFNAME has it."),
    "flows": flag(_WAY, "--flows", metavar="N", min=1, max=16, help="TCP connections over each interface."),
    "in_flight": flag(_WAY, "--in-flight", metavar="N", min=1, max=32, help="Messages under way at a time."),
    "chunk": flag(_WAY, "--chunk", metavar="SIZE", help="Bytes that go over one connection at a time."),
    "window": flag(_WAY, "--window", metavar="SIZE", help="Most bytes in flight over one of several connections."),
    "least": flag(_SIZES, "-b", "--minbytes", metavar="SIZE", help="Smallest size."),
    "most": flag(_SIZES, "-e", "--maxbytes", metavar="SIZE", help="Largest size."),
    "factor": flag(_SIZES, "-f", "--stepfactor", metavar="N", min=2, help="Each size is the last one times this."),
    "rounds": flag(_SIZES, "--rounds", metavar="N", min=1, help="Turns of each implementation at each size."),
    "budget_ms": flag(_SIZES, "--budget-ms", metavar="MS", min=1.0, help="About how long a turn lasts."),
    "floor": flag(_PEERS, "--floor", metavar="LIST", help="Numbers of flows of the plain sockets; or none."),
    "peers": flag(_PEERS, "--peers", metavar="all|none|openmpi", help="Others, with both ends on this host."),
    "port": flag(_SERVE_PANEL, "--port", metavar="N", min=0, max=_PORTS - 1, help="At which others ask."),
    "bind": flag(_SERVE_PANEL, "--bind", metavar="ADDRESS", help="Where serve listens."),
    "log": flag(_OUTPUT, "--log", metavar="FILE.md", help="Write machine, settings and all rows."),
    "plot": flag(_OUTPUT, "--plot", metavar="FILE", help="Draw rate and time over size."),
    "json": flag(_OUTPUT, "--json", metavar="FILE", help="Write all rows (schema stretto.p2p/1); - is stdout."),
}


def _address(host: str, port: int) -> tuple[str, int]:
    """Of HOST or HOST:PORT, in numbers."""
    name, colon, digits = host.rpartition(":")
    if colon and digits.isdecimal() and (":" not in name or name.endswith("]")):
        host, port = name, int(digits)
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except OSError as error:
        stop(f"p2p: there is no host {host}: {error.strerror or error}")
    return str(found[0][4][0]), port


def _serve(options: Options) -> None:
    """Until Ctrl-C."""
    words = ["serve", options.bind, str(options.port)]
    with contextlib.closing(_driver(words, options.environment(options.nics))) as driver:
        try:
            port = int(driver.answer(_START_SECONDS)["port"])
            console.print(f"serving at port {port}. On the other host: stretto p2p {socket.gethostname()}:{port}")
            console.print("Whoever reaches this port can measure and hold memory: end it with Ctrl-C when done.")
            while True:
                try:
                    console.print(f"{datetime.now():%H:%M:%S}  {driver.answer(None)['peer']}")
                except Failed as error:
                    if "ended with status" in str(error) or "said no more" in str(error):
                        raise
                    console.print(str(error), markup=False)
        except Failed as error:
            stop(f"p2p serve: {error}", 1)
        except KeyboardInterrupt:
            return


def _driver(words: list[str], environment: dict[str, str]) -> Driver:
    try:
        return Driver("net_driver", [str(find_driver("net_driver")), *words], environment)
    except Missing as error:
        stop(f"p2p: {error}", 1)
        raise AssertionError from error


def _cpus() -> list[str]:
    """For two processes on one host, one each."""
    allowed = sorted(os.sched_getaffinity(0))
    return [str(allowed[0]), str(allowed[1])] if len(allowed) > 1 else []


def _measure(
    asker: Driver, more: list[Implementation], plan: Plan, quiet: bool
) -> tuple[dict[str, Any], list[dict[str, Any]], list[Any]]:
    facts = asker.answer(_START_SECONDS)
    implementations = opened(asker, plan) + more
    rows: list[dict[str, Any]] = []
    shows = progress.is_terminal and not quiet
    with progress.status("measuring") if shows else contextlib.nullcontext() as status:
        tell = (lambda text: status.update(text)) if status is not None else (lambda text: None)
        for found in sweep(implementations, plan, tell):
            rows += found
    return facts, rows, list(asker.ask(f"flows {implementations[0].number}", _START_SECONDS)["flows"])


def _show(record: dict[str, Any]) -> None:
    rows = record["rows"]
    headings = [*report.HEADINGS, *(f"{name} GB/s" for name in report.peers(rows))]
    shown = table(*headings, right=tuple(range(len(headings))))
    for one in report.sizes_of(rows):
        shown.add_row(*report.line(one))
    console.print(shown)
    lost = [flow["route"] for flow in record["flows"] if flow["lost"]]
    if lost:
        console.print(f"lost on the way, and carried by the others: {', '.join(lost)}", markup=False)


@with_flags(Options, FLAGS)
def p2p(**given: Any) -> None:
    """Move messages between two hosts: one way, both ways, there and back.

    GB/s are with --in-flight messages under way, from the first send until the receiver has said that the last byte is
    there; the median of the turns. Half a round trip is of one message that is sent and sent back, of which the 99th
    percentile is shown too. The floor is plain sockets with nothing on them, in turns with Stretto in one run; the
    ratio is Stretto's rate over that of the best of them. What arrives last in each turn is compared with what was
    sent; the exit status is 1 if anything is wrong.

    Variables STRETTO_NET_* of the host that asks hold for both; NCCL_NET_PLUGIN, on both, measures somebody else's net.
    """
    options = Options(**given)
    plan = _plan(options)
    if options.host == _SERVE:
        _serve(options)
        return
    for file in (options.log, options.plot, None if options.json == "-" else options.json):
        if file is not None:
            expect_writable("p2p", file)
    with contextlib.ExitStack() as ends:
        try:
            record = _run(options, plan, ends)
        except Failed as error:
            stop(f"p2p: {error}", 1)
            return
    _write(record, options)
    emit(record, options.json, lambda: _show(record))
    wrong = sum(int(row["wrong"]) for row in record["rows"])
    if wrong:
        stop(f"p2p: {wrong} bytes that arrived are wrong", 1)


def _plan(options: Options) -> Plan:
    """Ends the command where it cannot be."""
    if options.operation != "send":
        stop(
            f"p2p: --operation {options.operation}: the net moves messages by send and receive alone. One-sided write "
            "and read are not in its table (NCCL's net plugin table, version 12)"
        )
    least, most = size(options.least), size(options.most)
    if not least or least > most or most > 1 << 30:
        stop(f"p2p: sizes from {least} to {most}: 1 byte to 1G, the smaller one first")
    words = options.floor.split(",") if options.floor != "none" else []
    if not all(word.isdecimal() and 1 <= int(word) <= 64 for word in words):
        stop(f"p2p: --floor {options.floor}: numbers of flows, 1 to 64, with commas between; or none")
    if options.peers not in ("all", "none", "openmpi"):
        stop(f"p2p: --peers {options.peers}: all, none or openmpi")
    if options.host and options.peers == "openmpi":
        stop("p2p: --peers openmpi: with both ends on this host only (`stretto p2p` without HOST)")
    ways = tuple(dict.fromkeys(options.ways.split(",")))
    if not set(ways) <= set(WAYS):
        stop(f"p2p: --ways {options.ways}: of {', '.join(WAYS)}, with commas between")
    floor = tuple(int(word) for word in words)
    return Plan(least, most, options.factor, options.rounds, options.budget_ms, options.in_flight, floor, ways)


def _settings(options: Options, environment: dict[str, str]) -> dict[str, Any]:
    return {
        "nics": environment.get("NCCL_SOCKET_IFNAME", ""),
        "flows_a_nic": options.flows,
        "in_flight": options.in_flight,
        "chunk": options.chunk or "as it comes",
        "window": options.window or "as it comes",
        "rounds": options.rounds,
        "budget_ms": options.budget_ms,
    }


def _run(options: Options, plan: Plan, ends: contextlib.ExitStack) -> dict[str, Any]:
    cpus: list[str] = []
    more: list[Implementation] = []
    nics = options.nics
    if options.host:
        address, port = _address(options.host, options.port)
    else:
        cpus = _cpus()
        address, nics = "127.0.0.1", nics or os.environ.get("NCCL_SOCKET_IFNAME") or "lo"
        words = ["serve", address, "0", *cpus[:1]]
        served = ends.enter_context(contextlib.closing(_driver(words, options.environment(nics))))
        port = int(served.answer(_START_SECONDS)["port"])
        more = _peers(options.peers, cpus, ends)
    environment = options.environment(nics)
    asker = ends.enter_context(contextlib.closing(_driver(["go", address, str(port), *cpus[1:]], environment)))
    facts, rows, flows = _measure(asker, more, plan, options.json == "-")
    return {
        "schema": "stretto.p2p/1",
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "command": shlex.join(["stretto", *sys.argv[1:]]),
        "machine": machine(),
        "settings": _settings(options, environment),
        "to": f"{options.host} ({address}:{port})" if options.host else "this host",
        "net": facts["net"],
        "rows": rows,
        "flows": flows,
    }


def _peers(wanted: str, cpus: list[str], ends: contextlib.ExitStack) -> list[Implementation]:
    """Those at hand; one that was asked for by name must be. `cpus`: of who serves, and of who asks."""
    if wanted == "none":
        return []
    try:
        driver = ends.enter_context(contextlib.closing(openmpi(cpus[::-1])))
        driver.answer(_START_SECONDS)
    except (Missing, Failed) as error:
        if wanted != "all":
            raise Failed(str(error)) from error
        progress.print(f"without openmpi: {error}", markup=False)
        return []
    return [Implementation("openmpi", driver, 0)]


def _write(record: dict[str, Any], options: Options) -> None:
    if options.log is not None:
        options.log.write_text(report.log(record))
    if options.plot is not None:
        try:
            report.save_plot(record, options.plot)
        except ImportError as error:
            stop(f"p2p: --plot needs matplotlib ({error}): pip install matplotlib", 1)
