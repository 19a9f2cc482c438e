"""Checks of network interfaces, by what their drivers and the kernel say: judgements of facts alone. They belong to the
section "machine".
"""

from __future__ import annotations

from collections.abc import Iterator

from stretto.audit.context import Context
from stretto.audit.facts import Facts, Nic
from stretto.audit.finding import Finding, Severity, check, note, ok, warning

_FAST = 10000  # Mbit/s: from here on what the kernel does for each packet decides
_MANY_MISSED = 1e-5
_MANY_TIMES = 100


@check("machine.nic-speed", "speed of the network interfaces", Severity.WARNING)
def nic_speed(context: Context) -> Iterator[Finding]:
    """A port that has fallen back to a lower speed makes its host the slowest one of the job."""
    up = [nic for nic in context.facts.nics if nic.up and nic.physical and nic.speed is not None]
    fastest = max((nic.speed or 0 for nic in up), default=0)
    slow = [
        nic for nic in up if (nic.speed or 0) < fastest and (nic.speed or 0) >= 1000 and fastest < 10 * (nic.speed or 0)
    ]
    text = ", ".join(f"{nic.name} {(nic.speed or 0) / 1000:g} Gbit/s" for nic in up)
    if slow:
        yield warning(
            text,
            f"{fastest / 1000:g} Gbit/s, as the other ports of this host",
            subject=slow[0].name,
            certainty="likely",
            cause="a cable, a transceiver or a port of the switch that negotiated a lower speed",
            next_step=f"ethtool {slow[0].name}; move jobs to the others by NCCL_SOCKET_IFNAME meanwhile",
        )
    else:
        yield ok(text or "no interface says its speed")


@check("machine.nic-mtu", "MTU of the network interfaces", Severity.WARNING)
def nic_mtu(context: Context) -> Iterator[Finding]:
    """Rails with different MTUs are differently fast, and large packets may be dropped in silence."""
    up = [nic for nic in context.facts.nics if nic.up and nic.physical]
    fast = [nic for nic in up if (nic.speed or 0) >= _FAST]
    text = ", ".join(f"{nic.name} {nic.mtu}" for nic in up)
    if len({nic.mtu for nic in fast}) > 1:
        least = min(fast, key=lambda nic: nic.mtu)
        yield warning(
            text,
            "one MTU on all fast ports",
            subject=least.name,
            certainty="possible",
            cause="one port was configured by hand, or lost its configuration",
            next_step=f"ip link set {least.name} mtu {max(nic.mtu for nic in fast)}, if the switch agrees",
        )
    elif fast and all(nic.mtu <= 1500 for nic in fast):
        yield note(
            text,
            "9000 where the switches allow it",
            cause="the default",
            next_step="ip link set DEV mtu 9000 on all hosts and switches, or not at all",
        )
    else:
        yield ok(text or "no interface but loopback")


def _fast(facts: Facts) -> list[Nic]:
    return [nic for nic in facts.nics if nic.up and nic.physical and (nic.speed or 0) >= _FAST]


@check("machine.nic-numa", "network interfaces near the GPUs, or near the allowed cores", Severity.WARNING)
def nic_numa(context: Context) -> Iterator[Finding]:
    """What a GPU sends over an interface of the other socket crosses the sockets' link first, and so does what a rank
    without a GPU sends."""
    facts = context.facts
    near = {nic.node: nic.name for nic in _fast(facts) if nic.node is not None and nic.node >= 0}
    gpus = {gpu.node for gpu in facts.gpus if gpu.node is not None and gpu.node >= 0}
    cores = {node for node, allowed in facts.nodes if allowed}
    wanted, whose = (gpus, "GPUs") if gpus else (cores, "allowed cores")
    text = ", ".join(f"{name} on node {node}" for node, name in sorted(near.items()))
    where = f"{whose} on node {', '.join(map(str, sorted(wanted)))}"
    if near and wanted and not wanted & near.keys():
        yield (warning if gpus else note)(
            f"{text}; {where}",
            f"a fast interface on a node of the {whose}",
            subject=text,
            certainty="possible",
            cause="the card is in a slot of the other socket"
            if gpus
            else "the affinity of this process, or a card in a slot of the other socket",
            next_step="move the card, or use the GPUs of its node"
            if gpus
            else f"numactl --cpunodebind={min(near)} --membind={min(near)}",
        )
    elif near and gpus - near.keys():
        far = ", ".join(map(str, sorted(gpus - near.keys())))
        yield note(
            f"{text}; {where}",
            "a fast interface on each node of the GPUs",
            subject=f"node {far}",
            cause=f"no fast interface on node {far}",
            next_step="nothing, unless the ranks there are the slow ones",
        )
    else:
        yield ok(f"{text}; {where}" if near and wanted else "no fast interface says its node")


@check("machine.nic-rings", "packets that network interfaces have room for", Severity.WARNING)
def nic_rings(context: Context) -> Iterator[Finding]:
    """A packet that finds the ring full is lost, and TCP waits for a fifth of a second before it is sent again, where
    nothing comes after it."""
    known = [nic for nic in context.facts.nics if nic.up and nic.physical and nic.ring and nic.ring_most]
    for nic in known:
        ring, most = nic.ring or 0, nic.ring_most or 0
        text = f"{nic.name} has room for {ring:,} packets of {most:,} at most, and missed {nic.missed:,}"
        mend = f"ethtool -G {nic.name} rx {most} (needs root)"
        if nic.missed > _MANY_MISSED * max(nic.received, 1) and nic.missed > 1 and ring < most:
            fast = (nic.speed or 0) >= _FAST and nic.missed >= _MANY_TIMES
            yield (warning if fast else note)(
                f"{text} of {nic.received:,} since it came up",
                "none missed",
                subject=nic.name,
                certainty="likely",
                cause="the ring is small, and the core that empties it was busy for longer than it lasts",
                next_step=f"{mend}; see whether the number grows",
            )
        elif (nic.speed or 0) >= _FAST and ring < most / 4:
            yield note(
                text,
                "a quarter of the most, or more, on fast ports",
                subject=nic.name,
                cause="the driver's default",
                next_step=f"{mend}, if packets are missed under load",
            )
        else:
            yield ok(text, subject=nic.name)
    if not known:
        yield ok("no interface says the size of its rings")


@check("machine.nic-offloads", "what network interfaces do for the kernel", Severity.NOTE)
def nic_offloads(context: Context) -> Iterator[Finding]:
    """Without segmentation (TSO) and merging (GRO) the processor cuts and joins packets: 3 million a second at
    40 Gbit/s with an MTU of 1500. Some cards cannot do it."""
    known = [nic for nic in context.facts.nics if nic.up and nic.physical and nic.segmentation is not None]
    for nic in known:
        off = [
            name
            for name, on in (("segmentation (TSO)", nic.segmentation), ("merging (GRO)", nic.merging))
            if on is False
        ]
        if off and (nic.speed or 0) >= _FAST:
            yield note(
                f"{nic.name}: {' and '.join(off)} off",
                "on, on a fast port",
                subject=nic.name,
                cause="switched off for a bridge, a capture of packets or a mistake of a driver",
                next_step=f"ethtool -K {nic.name} tso on gro on (needs root), where ethtool -k says it can be",
            )
        else:
            yield ok(f"{nic.name}: {' and '.join(off) or 'none'} off", subject=nic.name)
    if not known:
        yield ok("no interface says what it does")
