"""Checks of several hosts: whether each is there, and what lies between them, by what `several` has gathered."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations

from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity, check, error, note, ok, warning
from stretto.audit.words import microseconds, significant

# By how much the best of several ways may be better than the worst one, before anything is said, on a quiet machine.
_APART = 3.0
# And how much slower than a plain socket, in turns with it, Stretto's own net may be.
BESIDE_SOCKETS = 4.0
# What of a port's speed a single connection should reach.
_OF_PORT = 0.25
_CLOCKS_APART_US = 10_000.0


@dataclass(frozen=True)
class Way:
    """From one host to another. `problem`: why nothing is known of it. Rates and half round trips are the best of their
    turns, which other programs worsen least. `small_noise` and `large_noise`: how many times worse the usual turn was,
    of small messages (half round trips) and of large ones (rates).
    """

    source: str
    target: str
    problem: str = ""
    interface: str = ""  # of the source
    address: str = ""  # of the target
    mtu: int = 0
    large: bool = True
    offset_us: float = 0.0
    error_us: float = 0.0
    gbps: float | None = None
    sockets_gbps: float | None = None
    half_us: float | None = None
    sockets_half_us: float | None = None
    small_noise: float = 1.0
    large_noise: float = 1.0
    wrong: int = 0
    unmeasured: str = ""  # why a way that can be reached has no numbers

    @property
    def name(self) -> str:
        return f"{self.source} to {self.target}"

    @property
    def least_us(self) -> float:
        """Half a round trip by whoever was fastest: what the network takes, wherever the processes ran."""
        return min(one for one in (self.half_us, self.sockets_half_us, self.error_us) if one)

    @property
    def beside_sockets(self) -> tuple[float, float]:
        """How many times worse Stretto is than a plain socket, by a small and by a large message."""
        assert self.half_us and self.sockets_half_us and self.gbps and self.sockets_gbps
        return self.half_us / self.sockets_half_us, self.sockets_gbps / self.gbps

    @property
    def seems_slow(self) -> bool:
        small, large = self.beside_sockets
        return small > BESIDE_SOCKETS * self.small_noise or large > BESIDE_SOCKETS * self.large_noise

    def best_of(self, other: Way) -> Way:
        """Of two measurements of one way."""
        assert self.half_us and self.sockets_half_us and self.gbps and self.sockets_gbps
        assert other.half_us and other.sockets_half_us and other.gbps and other.sockets_gbps
        return replace(
            self,
            gbps=max(self.gbps, other.gbps),
            sockets_gbps=max(self.sockets_gbps, other.sockets_gbps),
            half_us=min(self.half_us, other.half_us),
            sockets_half_us=min(self.sockets_half_us, other.sockets_half_us),
            small_noise=max(self.small_noise, other.small_noise),
            large_noise=max(self.large_noise, other.large_noise),
            wrong=self.wrong + other.wrong,
        )


@dataclass(frozen=True)
class Port:
    """The interface by which a host is reached. `speed`: in Mbit/s, where the driver says."""

    interface: str
    mtu: int
    speed: int | None


@dataclass(frozen=True)
class Network:
    """`lost`: hosts without an audit, with the reason; `ports`: by host; `port_ranges`: TCP ports that connections
    take."""

    hosts: tuple[str, ...]
    lost: dict[str, str] = field(default_factory=dict)
    ways: tuple[Way, ...] = ()
    ports: dict[str, Port] = field(default_factory=dict)
    port_ranges: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def measured(self) -> list[Way]:
        return [way for way in self.ways if way.gbps is not None]


def _network(context: Context) -> Network:
    assert context.network is not None, "the section is looked at where there are hosts"
    return context.network


@check("network.hosts", "whether each host can be audited", Severity.ERROR)
def hosts(context: Context) -> Iterator[Finding]:
    """What cannot be reached or ends in the middle of an audit ends jobs as well."""
    network = _network(context)
    for name in network.hosts:
        why = network.lost.get(name)
        if why is None:
            yield ok("audited", subject=name)
            continue
        reason, dot, step = why.partition(". ")
        yield error(
            f"{name}: {reason}",
            "an audit of this host",
            subject=name,
            certainty="possible",
            cause="the host is down, its remote shell or its Python cannot be used, or its memory is full",
            next_step=step if dot else f"look at {name} itself: dmesg and `stretto audit` there",
        )


@check("network.reach", "whether each host can connect to each other one", Severity.ERROR)
def reach(context: Context) -> Iterator[Finding]:
    """Ranks connect to whichever rank they talk to, at any port of the range that the kernel gives."""
    for way in _network(context).ways:
        if way.problem:
            yield error(
                f"{way.source} cannot connect to {way.target}: {way.problem}",
                "a connection at any port, by an interface that NCCL_SOCKET_IFNAME names",
                subject=way.name,
                certainty="possible",
                cause="a firewall, a network that does not lead there, or an interface that is not the one for ranks",
                next_step=f"ping and nc from {way.source}; NCCL_SOCKET_IFNAME names the interface for ranks",
            )
        elif way.unmeasured:
            yield error(
                f"messages from {way.source} to {way.target} fail: {way.unmeasured}",
                "messages of 8 B and 4 MB that arrive",
                subject=way.name,
                certainty="possible",
                cause="a connection that was lost, or a process that was ended",
                next_step=f"on {way.target}: stretto p2p serve; on {way.source}: stretto p2p {way.target}",
            )
        else:
            yield ok(f"{way.name}, {way.address} by {way.interface}", subject=way.name)


@check("network.data", "whether messages between hosts arrive whole", Severity.ERROR)
def data(context: Context) -> Iterator[Finding]:
    """The check sum of TCP has 16 bits, and a card that computes it itself may change what it has checked."""
    wrong = [way for way in _network(context).measured if way.wrong]
    for way in wrong:
        yield error(
            f"{way.wrong} bytes from {way.source} to {way.target} are wrong",
            "none",
            subject=way.name,
            certainty="possible",
            cause="a network card, its driver or a switch that changes data after the check sum",
            next_step=f"ethtool -K DEV tx off rx off on both, and stretto p2p {way.target} again; replace the card",
        )
    if not wrong:
        yield ok(f"of {len(_network(context).measured)} ways each message was what was sent")


def _against_others(
    ways: list[Way], cost: dict[str, float], noise: float, shown: dict[str, str], about: str
) -> Iterator[Finding]:
    """Whether the way that costs most costs more than ways as noisy may. `cost`: more is worse."""
    if len(ways) < 2:
        return
    worst = max(ways, key=lambda way: cost[way.name])
    times = cost[worst.name] / statistics.median(cost[way.name] for way in ways if way is not worst)
    room = _APART * noise
    if times > room:
        yield warning(
            f"{worst.name}: {shown[worst.name]}, {times:.1f} times worse than the other ways' median",
            f"ways within {room:.1f} times of each other: "
            + ", ".join(f"{way.name} {shown[way.name]}" for way in ways),
            subject=worst.name,
            certainty="likely",
            cause=f"{about}: a cable, a port of a switch, other traffic, or a longer way through the network",
            next_step=f"stretto p2p between the two shows all sizes; ethtool -S DEV on {worst.source} counts errors",
        )


def _against_sockets(way: Way, times: float, noise: float, text: str) -> Iterator[Finding]:
    if times > BESIDE_SOCKETS * noise:
        yield warning(
            f"{way.name}: {text}, {times:.1f} times worse than a plain socket in turns with it",
            f"no more than {BESIDE_SOCKETS * noise:.1f} times",
            subject=way.name,
            certainty="likely",
            cause="STRETTO_NET_ variables, or too few cores for the processes at both ends",
            next_step="stretto p2p between the two with --chunk, --window and --flows; unset STRETTO_NET_*",
        )


@check("network.latency", "small messages, against the other ways and a plain socket", Severity.WARNING)
def latency(context: Context) -> Iterator[Finding]:
    """Half a round trip of 8 B. Where all hosts stand in one network, all ways take as long."""
    ways = _network(context).measured
    shown = {way.name: microseconds(way.least_us) for way in ways}
    noise = max((way.small_noise for way in ways), default=1.0)
    bad = list(_against_others(ways, {way.name: way.least_us for way in ways}, noise, shown, "latency"))
    for way in (way for way in ways if way.name not in {one.subject for one in bad}):
        bad += _against_sockets(way, way.beside_sockets[0], way.small_noise, microseconds(way.half_us or 0.0))
    yield from bad
    if ways and not bad:
        yield ok(", ".join(f"{way.name} {shown[way.name]}" for way in ways))


@check("network.bandwidth", "large messages, against the other ways, a plain socket and the port", Severity.WARNING)
def bandwidth(context: Context) -> Iterator[Finding]:
    """Messages of 4 MB over one connection. The slowest way decides how fast a collective of all hosts is."""
    network = _network(context)
    ways = network.measured
    shown = {way.name: f"{significant(way.gbps or 0.0)} GB/s" for way in ways}
    noise = max((way.large_noise for way in ways), default=1.0)
    slowness = {way.name: 1 / (way.gbps or 1e-9) for way in ways}
    bad = list(_against_others(ways, slowness, noise, shown, "bandwidth"))
    for way in (way for way in ways if way.name not in {one.subject for one in bad}):
        bad += _against_sockets(way, way.beside_sockets[1], way.large_noise, shown[way.name])
        port = network.ports.get(way.source)
        fastest = max(way.gbps or 0.0, way.sockets_gbps or 0.0)
        if port is not None and port.speed and fastest < _OF_PORT / way.large_noise * port.speed / 8000:
            bad.append(
                warning(
                    f"{way.name}: {significant(fastest)} GB/s over one connection",
                    f"more than {_OF_PORT:.0%} of the {port.speed / 1000:g} Gbit/s of {port.interface}",
                    subject=way.name,
                    certainty="possible",
                    cause="small socket buffers, an MTU of 1500, cores that cannot fill the port, or other traffic",
                    next_step=f"stretto p2p {way.target} --flows 4 shows whether more connections help "
                    "(STRETTO_NET_FLOWS); sysctl net.ipv4.tcp_rmem net.ipv4.tcp_wmem",
                )
            )
    yield from bad
    if ways and not bad:
        yield ok(", ".join(f"{way.name} {shown[way.name]}" for way in ways))


@check("network.mtu", "packets as large as the interfaces allow", Severity.ERROR)
def mtu(context: Context) -> Iterator[Finding]:
    """A switch that drops what is larger than its own MTU says nothing: small messages arrive, and large ones hang."""
    network = _network(context)
    reached = [way for way in network.ways if not way.problem]
    for way in reached:
        if not way.large:
            yield error(
                f"{way.name}: a connection is made, and 256 KB over it do not arrive",
                f"packets of {way.mtu} bytes that arrive",
                subject=way.name,
                certainty="possible",
                cause="a switch between them, or the other host, drops packets as large as this host sends",
                next_step=f"ping -M do -s {way.mtu - 28} {way.address} from {way.source}; one MTU on all of them",
            )
    mtus = {port.mtu for port in network.ports.values()}
    if len(mtus) > 1:
        yield warning(
            ", ".join(f"{name} {port.interface} {port.mtu}" for name, port in network.ports.items()),
            "one MTU on all hosts",
            certainty="possible",
            cause="one host was configured by hand, or lost its configuration",
            next_step=f"ip link set DEV mtu {max(mtus)} on all, if the switches agree; else {min(mtus)}",
        )
    elif reached and all(way.large for way in reached):
        yield ok(", ".join(f"{name} {port.interface} {port.mtu}" for name, port in network.ports.items()))


@check("network.speed", "speed of the ports by which the hosts reach each other", Severity.WARNING)
def speed(context: Context) -> Iterator[Finding]:
    """All hosts are as fast as the slowest port among them."""
    ports = {name: port for name, port in _network(context).ports.items() if port.speed}
    text = ", ".join(f"{name} {port.interface} {(port.speed or 0) / 1000:g} Gbit/s" for name, port in ports.items())
    if len({port.speed for port in ports.values()}) > 1:
        slow = min(ports, key=lambda name: ports[name].speed or 0)
        yield warning(
            text,
            "one speed on all hosts",
            subject=slow,
            certainty="possible",
            cause="a cable, a transceiver or a port of the switch that negotiated a lower speed; or another interface "
            "than on the other hosts",
            next_step=f"on {slow}: ethtool {ports[slow].interface}; NCCL_SOCKET_IFNAME chooses another interface",
        )
    else:
        yield ok(text or "no interface says its speed")


@check("network.ports", "TCP ports that connections take", Severity.NOTE)
def port_ranges(context: Context) -> Iterator[Finding]:
    """A firewall that lets the ports of one host through may stop those of another."""
    ranges = _network(context).port_ranges
    text = ", ".join(f"{name} {first} to {last}" for name, (first, last) in ranges.items())
    if len(set(ranges.values())) > 1:
        yield note(
            text,
            "one range on all hosts",
            cause="net.ipv4.ip_local_port_range was changed on some",
            next_step="set it alike, and let a firewall pass all of it",
        )
    else:
        yield ok(text or "not known")


@check("network.clock", "how far the hosts' clocks lie apart", Severity.NOTE)
def clock(context: Context) -> Iterator[Finding]:
    """Logs and recordings of several hosts are put in order by their clocks."""
    found = [way for way in _network(context).ways if not way.problem]
    apart = [way for way in found if abs(way.offset_us) - way.error_us > _CLOCKS_APART_US]
    by_pair = {frozenset((way.source, way.target)): way for way in apart}
    for way in by_pair.values():
        yield note(
            f"the clock of {way.target} is {microseconds(abs(way.offset_us))} "
            f"{'ahead of' if way.offset_us > 0 else 'behind'} that of {way.source}, within "
            f"{microseconds(way.error_us)}",
            f"no more than {microseconds(_CLOCKS_APART_US)}",
            subject=way.name,
            cause="no time service, or different ones (chrony, ntpd, PTP)",
            next_step="chronyc tracking, or timedatectl, on both",
        )
    if found and not apart:
        worst = max(found, key=lambda way: abs(way.offset_us))
        yield ok(
            f"{microseconds(abs(worst.offset_us))} at most, {worst.name}, known within {microseconds(worst.error_us)}"
        )


def pairs_of(names: list[str]) -> list[tuple[str, str]]:
    """Each two of them once."""
    return list(combinations(names, 2))
