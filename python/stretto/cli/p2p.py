"""`stretto p2p`: bytes from one host to another."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer

from stretto.bench.drivers import Missing, find_driver
from stretto.bench.rows import machine
from stretto.cli.output import JsonOption, console, emit, examples, expect_writable, progress, size, stop, table
from stretto.p2p import report
from stretto.p2p.driver import Driver, Failed
from stretto.p2p.measure import FLOOR, SUBJECT, Implementation, Options, sweep
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
_START_SECONDS = 60.0
_PORTS = 65536


def _environment(nics: str | None, chunk: str | None, window: str | None, flows: int) -> dict[str, str]:
    variables = {
        "NCCL_SOCKET_IFNAME": nics,
        "STRETTO_NET_CHUNK": chunk,
        "STRETTO_NET_WINDOW_MAX": window,
        "STRETTO_NET_FLOWS": str(flows) if flows else None,
    }
    return {**os.environ, **{name: value for name, value in variables.items() if value}}


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


def _serve(bind: str, port: int, environment: dict[str, str]) -> None:
    """Until Ctrl-C."""
    with contextlib.closing(_driver(["serve", bind, str(port)], environment)) as driver:
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
        stop(f"p2p: {error}")
        raise AssertionError from error


def _cpus() -> list[str]:
    """For two processes on one host, one each."""
    allowed = sorted(os.sched_getaffinity(0))
    return [str(allowed[0]), str(allowed[1])] if len(allowed) > 1 else []


def _implementations(asker: Driver, options: Options) -> list[Implementation]:
    found = [Implementation(SUBJECT, asker, int(asker.ask("open net 1", _START_SECONDS)["end"]))]
    for flows in options.floor:
        name = f"{FLOOR} {flows} flow{'s' if flows > 1 else ''}"
        found.append(Implementation(name, asker, int(asker.ask(f"open plain {flows}", _START_SECONDS)["end"])))
    return found


def _measure(
    asker: Driver, more: list[Implementation], options: Options, quiet: bool
) -> tuple[dict[str, Any], list[dict[str, Any]], list[Any]]:
    facts = asker.answer(_START_SECONDS)
    implementations = _implementations(asker, options) + more
    rows: list[dict[str, Any]] = []
    shows = progress.is_terminal and not quiet
    with progress.status("measuring") if shows else contextlib.nullcontext() as status:
        tell = (lambda text: status.update(text)) if status is not None else (lambda text: None)
        for found in sweep(implementations, options, tell):
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


def p2p(
    host: Annotated[
        str,
        typer.Argument(
            metavar="[serve|HOST[:PORT]]",
            help="serve: answer others. HOST: where `stretto p2p serve` runs. Nothing: both ends on this host.",
            show_default=False,
        ),
    ] = "",
    operation: Annotated[
        str, typer.Option("--operation", metavar="KIND", help="send: send and receive.", rich_help_panel=_WAY)
    ] = "send",
    nics: Annotated[
        str | None,
        typer.Option(
            "--nics",
            metavar="LIST",
            help="Network interfaces of this host, as NCCL_SOCKET_IFNAME has it.",
            rich_help_panel=_WAY,
        ),
    ] = None,
    flows: Annotated[
        int, typer.Option(metavar="N", min=1, max=16, help="TCP connections over each NIC.", rich_help_panel=_WAY)
    ] = 1,
    in_flight: Annotated[
        int, typer.Option(metavar="N", min=1, max=32, help="Messages under way at a time.", rich_help_panel=_WAY)
    ] = 8,
    chunk: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Bytes that go over one connection at a time.", rich_help_panel=_WAY),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Most bytes in flight over one of several.", rich_help_panel=_WAY),
    ] = None,
    least: Annotated[int, typer.Option("-b", "--minbytes", metavar="SIZE", parser=size, rich_help_panel=_SIZES)] = 4096,
    most: Annotated[
        int, typer.Option("-e", "--maxbytes", metavar="SIZE", parser=size, rich_help_panel=_SIZES)
    ] = 256 << 20,
    factor: Annotated[int, typer.Option("-f", "--stepfactor", metavar="N", min=2, rich_help_panel=_SIZES)] = 4,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Turns of each.", rich_help_panel=_SIZES)] = 7,
    budget_ms: Annotated[
        float, typer.Option("--budget-ms", metavar="MS", min=1.0, help="About how long a turn is.", rich_help_panel=_SIZES)
    ] = 100.0,
    floor: Annotated[
        str, typer.Option("--floor", metavar="LIST", help="Flows of the plain sockets.", rich_help_panel=_PEERS)
    ] = "1,2,4,8",
    peers: Annotated[
        str,
        typer.Option(metavar="all|none|openmpi", help="Others, with both ends on this host.", rich_help_panel=_PEERS),
    ] = "all",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=_PORTS - 1, help="Of serve, at which others ask.")] = PORT,
    bind: Annotated[str, typer.Option(metavar="ADDRESS", help="Of serve: where it listens.")] = "0.0.0.0",
    log: Annotated[Path | None, typer.Option(metavar="FILE.md", help="Write machine, settings and all rows.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it.")] = None,
    json: JsonOption = None,
) -> None:
    """Move messages between two hosts: one way, both ways, there and back.

    GB/s are with --in-flight messages under way, from the first send until the receiver has said that the last byte is
    there; the median of the turns. Half a round trip is of one message that is sent and sent back, of which the 99th
    percentile is shown too. The floor is plain sockets with nothing on them, in turns with Stretto in one run; the ratio is
    Stretto's rate over that of the best of them. What arrives last in each turn is compared with what was sent; the exit
    status is 1 if anything is wrong.

    STRETTO_NET_… variables of the host that asks hold for both; NCCL_NET_PLUGIN, on both, measures somebody else's net.
    """
    if operation != "send":
        stop(
            f"p2p: --operation {operation}: the net moves messages by send and receive alone. One-sided write and read are "
            "not in its table (NCCL's net plugin table, version 12)"
        )
    if not least or least > most or most > 1 << 30:
        stop(f"p2p: sizes from {least} to {most}: 1 byte to 1G, the smaller one first")
    words = floor.split(",") if floor != "none" else []
    if not all(word.isdecimal() and 1 <= int(word) <= 64 for word in words):
        stop(f"p2p: --floor {floor}: numbers of flows, 1 to 64, with commas between; or none")
    if host == _SERVE:
        _serve(bind, port, _environment(nics, None, None, 0))
        return
    for file in (log, plot, None if json == "-" else json):
        if file is not None:
            expect_writable("p2p", file)
    options = Options(least, most, factor, rounds, budget_ms, in_flight, flows, tuple(int(word) for word in words))
    here = not host
    environment = _environment(nics or (os.environ.get("NCCL_SOCKET_IFNAME") or "lo" if here else None), chunk, window, flows)
    settings = {
        "nics": environment.get("NCCL_SOCKET_IFNAME", ""),
        "flows_a_nic": flows,
        "in_flight": in_flight,
        "chunk": chunk or "as it comes",
        "window": window or "as it comes",
        "rounds": rounds,
        "budget_ms": budget_ms,
    }
    with contextlib.ExitStack() as ends:
        try:
            record = _run(host, port, environment, options, peers, ends, json == "-")
        except Failed as error:
            stop(f"p2p: {error}", 1)
            return
    record["settings"] = settings
    _write(record, log, plot)
    emit(record, json, lambda: _show(record))
    wrong = sum(int(row["wrong"]) for row in record["rows"])
    if wrong:
        stop(f"p2p: {wrong} bytes that arrived are wrong", 1)


def _run(
    host: str,
    port: int,
    environment: dict[str, str],
    options: Options,
    peers: str,
    ends: contextlib.ExitStack,
    quiet: bool,
) -> dict[str, Any]:
    cpus: list[str] = []
    more: list[Implementation] = []
    if host:
        address, port = _address(host, port)
        if peers not in ("all", "none"):
            stop(f"p2p: --peers {peers}: with both ends on this host only (`stretto p2p` without HOST)")
    else:
        cpus = _cpus()
        address = "127.0.0.1"
        served = ends.enter_context(contextlib.closing(_driver(["serve", address, "0", *cpus[:1]], environment)))
        port = int(served.answer(_START_SECONDS)["port"])
        more = _peers(peers, ends)
    asker = ends.enter_context(contextlib.closing(_driver(["go", address, str(port), *cpus[1:]], environment)))
    facts, rows, flows = _measure(asker, more, options, quiet)
    return {
        "schema": "stretto.p2p/1",
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "command": shlex.join(["stretto", *sys.argv[1:]]),
        "machine": machine(),
        "to": f"{host} ({address}:{port})" if host else "this host",
        "net": facts["net"],
        "rows": rows,
        "flows": flows,
    }


def _peers(wanted: str, ends: contextlib.ExitStack) -> list[Implementation]:
    """Those at hand; one that was asked for by name must be."""
    if wanted == "none":
        return []
    if wanted not in ("all", "openmpi"):
        stop(f"p2p: --peers {wanted}: all, none or openmpi")
    try:
        driver = ends.enter_context(contextlib.closing(openmpi()))
        driver.answer(_START_SECONDS)
    except (Missing, Failed) as error:
        if wanted != "all":
            raise Failed(str(error)) from error
        progress.print(f"without openmpi: {error}", markup=False)
        return []
    return [Implementation("openmpi", driver, 0)]


def _write(record: dict[str, Any], log: Path | None, plot: Path | None) -> None:
    if log is not None:
        log.write_text(report.log(record))
    if plot is not None:
        try:
            report.save_plot(record, plot)
        except ImportError as error:
            stop(f"p2p: --plot needs matplotlib ({error}): pip install matplotlib", 1)



