"""`stretto topo`: what this machine has and how it is connected, as the library sees it."""

from __future__ import annotations

from typing import Any

from stretto.cli.output import JsonOption, console, emit, table


def _bytes(number: int) -> str:
    """Rounded for people: 31.3 GiB."""
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.4g} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def _show(document: dict[str, Any]) -> None:
    console.print(f"{document['hostname']}: {document['processor'] or 'an unnamed processor'}")
    rows = table("what", "size", "cores", right=(1,))
    rows.add_row("usable cores", "", str(document["usable_cores"]))
    rows.add_row("memory", _bytes(document["memory_bytes"]), "")
    for node in document["nodes"]:
        rows.add_row(f"NUMA node {node['id']}", _bytes(node["memory_bytes"]), str(node["cores"]))
    for cache in document["caches"]:
        rows.add_row(f"L{cache['level']} cache", _bytes(cache["bytes"]), str(cache["cores"]))
    console.print(rows)


def topo(json: JsonOption = None) -> None:
    """Show this machine's cores, NUMA nodes, caches and memory. STRETTO_TOPO_FILE replaces what is found."""
    import stretto

    document = stretto.topology()
    emit(document, json, lambda: _show(document))
