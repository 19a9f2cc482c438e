"""`stretto topo`: what this machine has and how it is connected, as the library sees it."""

from __future__ import annotations

from typing import Any

from stretto.cli.output import JsonOption, console, emit, examples, table

SETTINGS: dict[str, Any] = {
    "epilog": examples("stretto topo", "stretto topo --json -", "STRETTO_TOPO_FILE=other.json stretto topo")
}


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
    if document["devices"]:
        _show_devices(document["devices"])


def _links(device: dict[str, Any], names: dict[str, str]) -> str:
    """NVLinks of one GPU in words: 18 x 26.6 GB/s to nvswitch."""
    words = []
    for links in device["nvlinks"]:
        speed = f" x {links['megabytes_per_second'] / 1000:.4g} GB/s" if links["megabytes_per_second"] else ""
        words.append(f"{links['count']}{speed} to {names.get(links['to'], links['to'] or 'an unknown end')}")
    return ", ".join(words) or "none"


def _show_devices(devices: list[dict[str, Any]]) -> None:
    names = {device["bus_id"]: f"GPU {index}" for index, device in enumerate(devices)}
    rows = table("GPU", "name", "memory", "bus id", "NUMA node", "NVLinks, each way", right=(0, 2, 4))
    for index, device in enumerate(devices):
        node = str(device["node"]) if device["node"] >= 0 else ""
        memory = _bytes(device["memory_bytes"])
        rows.add_row(str(index), device["name"], memory, device["bus_id"], node, _links(device, names))
    console.print(rows)


def topo(json: JsonOption = None) -> None:
    """Show this machine's cores, NUMA nodes, caches, memory and GPUs. STRETTO_TOPO_FILE replaces what is found."""
    import stretto

    document = stretto.topology()
    emit(document, json, lambda: _show(document))
