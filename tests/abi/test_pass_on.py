"""Every entry point of nccl.h asks first whether the call is another NCCL's to answer (src/api/pass_on.hpp)."""

import re
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src" / "api"


def entry_points() -> dict[str, str]:
    """By name, the text from its definition to the next one's."""
    found: dict[str, str] = {}
    for source in sorted(SOURCES.glob("*.cpp")):
        pieces = re.split(r"^STRETTO_API\((\w+)\)$", source.read_text(), flags=re.MULTILINE)
        found.update(zip(pieces[1::2], pieces[2::2], strict=True))
    return found


def test_every_entry_point_passes_on_what_is_not_ours() -> None:
    points = entry_points()
    assert len(points) > 40
    asks = r"^[^{{]*\{{\n(?:\s*//.*\n)*[^;]*?(?:STRETTO_PASS_ON(?:_CALLER)?\(\s*{name},|elsewhere\(\"{name}\")"
    missing = [name for name, text in points.items() if not re.search(asks.format(name=name), text)]
    assert not missing, f"these must begin with STRETTO_PASS_ON or STRETTO_PASS_ON_CALLER: {', '.join(missing)}"


def test_a_handle_among_the_arguments_decides() -> None:
    for name, text in entry_points().items():
        signature = text[: text.index("{")]
        handle = re.search(r"ncclComm_t (\w+)[,)]", signature)
        if handle is not None:
            assert re.search(rf"STRETTO_PASS_ON\(\s*{name}, {handle[1]},", text), (
                f"{name}: STRETTO_PASS_ON, by its handle"
            )
