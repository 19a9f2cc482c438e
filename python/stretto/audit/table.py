"""All checks, in the order in which they are looked at and shown: facts first, then what takes longer. `stretto audit
--list`, the page docs/audit.md and the tests read this table.
"""

from __future__ import annotations

import importlib

from stretto.audit.finding import ALL, BETWEEN_HOSTS, SECTIONS, Check

for _name in (
    "environment",
    "plugins",
    "machine",
    "nic_checks",
    "gpu_checks",
    "correctness",
    "speed",
    "launch",
    "lifetime",
    "counters",
    "stress",
    "gpu_ranks",
    "beside_checks",
    "library",
    "platform",
    "network",
):
    importlib.import_module(f"stretto.audit.{_name}")


def checks(only: list[str] | None = None, skip: list[str] | None = None) -> list[Check]:
    """Those whose id or section is named. Raises KeyError of a name that is neither."""
    for name in (*(only or ()), *(skip or ())):
        if name not in SECTIONS and all(name != one.id for one in ALL):
            raise KeyError(name)
    order = list(SECTIONS)
    wanted = [one for one in ALL if not only or one.id in only or one.section in only]
    wanted = [one for one in wanted if not skip or (one.id not in skip and one.section not in skip)]
    return sorted(wanted, key=lambda one: order.index(one.section))


def of_one_host(only: list[str] | None = None, skip: list[str] | None = None) -> list[Check]:
    """What can be looked at where no other host is known."""
    return [one for one in checks(only, skip) if one.section != BETWEEN_HOSTS]


def markdown() -> str:
    """The table for docs/audit.md."""
    lines = []
    for section, about in SECTIONS.items():
        lines += [f"### {section}: {about}", "", "| check | what is looked at | gravest | why |", "|---|---|---|---|"]
        lines += [f"| `{one.id}` | {one.title} | {one.worst.word} | {one.why} |" for one in checks([section])]
        lines.append("")
    return "\n".join(lines)
