"""`stretto explain`: how an operation would run, what else could have run it, and why this one won."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from stretto.audit.words import bytes_text
from stretto.cli.output import JsonOption, check_ranks, console, emit, examples, size, size_text, table

SETTINGS: dict[str, Any] = {
    "epilog": examples(
        "stretto explain all_reduce 1M --ranks 4",
        "stretto explain all_gather 64K -n 8 --json -",
        "stretto explain fused 64K --hidden 4096 -d bfloat16",
        "STRETTO_DEVICE=cuda stretto explain fused 64K --hidden 4096 -d bfloat16",
        "STRETTO_ALGO=ring stretto explain all_reduce 16M",
    )
}

_REASONS = {
    "only_one": "nothing else can run it",
    "model": "the model predicts that it is the fastest",
    "table": "it was measured to be the fastest",
    "forced": "it is forced",
}


def sentence(document: dict[str, Any]) -> str:
    """Why the chosen one won, in one sentence; or why nothing can run."""
    chosen = document["chosen"]
    if chosen is None:
        return f"Nothing runs: {document['error']}"
    name = f"{chosen['algorithm']} with {chosen['protocol']}"
    others = [
        one["predicted_us"]
        for one in document["candidates"]
        if one["possible"] and (one["algorithm"], one["protocol"]) != (chosen["algorithm"], chosen["protocol"])
    ]
    text = f"{name} runs, because {_REASONS.get(document['why'], document['why'])}"
    if document["why"] == "model" and others:
        text += f": {chosen['predicted_us']:.4g} µs, and the next best {min(others):.4g} µs"
    if document["why"] == "table":
        text += f" ({document['table']['origin']})"
    note = document["table"].get("note") if document["why"] == "model" else None
    return f"{text}. The table ({document['table']['origin']}) does not decide it: {note}." if note else text + "."


def _show(document: dict[str, Any], larger: int) -> None:
    """`larger`: bytes of the larger buffer; the document has those of a rank's block."""
    request, machine = document["request"], document["machine"]
    place = f"{machine['gpu'] or 'GPUs'}, {machine['links']}" if "gpu" in machine else f"{machine['cores']} cores"
    asked = f"{request['collective']} of {bytes_text(larger)} of {request['type']}"
    title = f"{asked} between {request['ranks']} ranks on {place}"
    parts = "blocks" if "gpu" in machine else "chunk"
    rows = table("", "algorithm", "protocol", parts, "predicted µs", "", title=title, right=(3, 4))
    for one in document["candidates"]:
        predicted = f"{one['predicted_us']:.2f}" if one["possible"] else "-"
        mark = "→" if one["chosen"] else ""
        style = "bold" if one["chosen"] else None if one["possible"] else "dim"
        cut = str(one["blocks"]) if "gpu" in machine else size_text(one["chunk_bytes"]) if one["chunk_bytes"] else "-"
        cut = cut if one["possible"] else "-"
        rows.add_row(mark, one["algorithm"], one["protocol"], cut, predicted, one["reason"], style=style)
    console.print(rows)
    console.print(sentence(document))


def explain(
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, ..., or fused: all_reduce_add_rms_norm.")],
    bytes: Annotated[str, typer.Argument(metavar="SIZE", help="Of the larger buffer: 8, 64K, 1M, 2G.")],
    ranks: Annotated[int, typer.Option("--ranks", "-n", metavar="N", help="How many ranks.")] = 2,
    dtype: Annotated[str, typer.Option("--dtype", "-d", metavar="TYPE", help="Element type.")] = "float32",
    op: Annotated[str, typer.Option("--op", "-o", metavar="OP", help="sum, prod, max, min or avg.")] = "sum",
    hidden: Annotated[int, typer.Option("--hidden", metavar="N", help="Of fused: the elements of a token.", min=0)] = 0,
    json: JsonOption = None,
) -> None:
    """Show how an operation would run between processes of this machine, what else could, and why this one won.

    The environment counts as it does for a job: STRETTO_DEVICE, STRETTO_ALGO, STRETTO_PROTO, STRETTO_TABLE,
    STRETTO_DETERMINISTIC.
    """
    import stretto

    check_ranks("explain", ranks)
    name = "all_reduce_add_rms_norm" if collective == "fused" else collective
    larger = size(bytes)
    document = stretto.explain(name, larger, ranks, dtype=dtype, op=op, hidden=hidden)  # type: ignore[arg-type]
    emit(document, json, lambda: _show(document, larger))
