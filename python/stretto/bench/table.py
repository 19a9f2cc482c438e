"""The table for people: a head, one line per size as soon as it is measured, and what it comes down to."""

from stretto.bench.measure import SUBJECT
from stretto.bench.options import Options
from stretto.bench.rows import FLOOR, Row, floor_share, geometric_mean, ratios
from stretto.bench.workload import COLLECTIVES, format_size

_SMALL_UP_TO = {"cpu": 64 << 10, "cuda": 1 << 20}
_FLOOR_FORMULAS = {
    "all_reduce": "reads S and writes S ({cross} of these bytes cross between ranks: 2(n-1)/n S)",
    "reduce_scatter": "reads S and writes S/n",
    "all_gather": "reads S/n and writes S",
    "reduce": "reads S and writes S/n",
    "gather": "reads S/n and writes S/n: the root's memory, shared out",
    "scatter": "reads S/n and writes S/n: the root's memory, shared out",
}


def _number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


class Table:
    """Knows which implementations have a column; everything it gives back is text without a final newline."""

    def __init__(self, options: Options, names: list[str]) -> None:
        self._options = options
        self._rivals = [name for name in names if name not in (SUBJECT, FLOOR)]
        self._names = [SUBJECT, *self._rivals] if SUBJECT in names else self._rivals
        self._has_floor = FLOOR in names
        self._widths = {name: max(9, len(name)) for name in self._names}

    def head(self) -> str:
        options = self._options
        facts = COLLECTIVES[options.collective]
        what = [options.collective, options.dtype]
        what += [options.op] if facts.reduces else []
        what += [f"root {options.root}"] if facts.rooted else []
        how = "threads (stretto; peers: processes)" if options.threads else "processes"
        place = "in place" if options.in_place else "out of place"
        turns = f"{options.rounds} turn{'s' * (options.rounds > 1)} each"
        forced = " ".join(word for word in (options.algorithm, options.protocol) if word)
        place += ", in CUDA graphs" if options.in_graph else ", eager calls" if options.on_gpu else ""
        facts_line = f"{' '.join(what)}, {options.ranks} ranks as {how}, {place}, {options.buffers} buffers, {turns}"
        line = f"{'size':>6}"
        units = f"{'':>6}"
        for name in self._names:
            line += f"  {name:>{self._widths[name]}} {'p99':>7}"
            units += f"  {'µs':>{self._widths[name]}} {'µs':>7}"
        line += f"  {'ratio':>6}  {'algbw':>6} {'busbw':>6}"
        units += f"  {'x':>6}  {'GB/s':>6} {'GB/s':>6}"
        if self._has_floor:
            line += f" {'floor':>6}"
            units += f" {'%':>6}"
        facts_line += f", forced: {forced}" if forced else ""
        return "\n".join([facts_line, "", line + "  wrong", units])

    def line(self, rows: list[Row]) -> str:
        """One size. The ratio is that of the best peer; bandwidths, floor and wrong elements as labelled."""
        by_name = {row["implementation"]: row for row in rows}
        size = rows[0]["bytes"]
        text = f"{format_size(size):>6}"
        for name in self._names:
            row = by_name.get(name)
            median, p99 = (_number(row["us_median"]), _number(row["us_p99"])) if row else ("-", "-")
            text += f"  {median:>{self._widths[name]}} {p99:>7}"
        best = [ratio for pairs in ratios(rows).values() for _, ratio in pairs]
        text += f"  {_number(min(best)):>6}" if best else f"  {'-':>6}"
        own = by_name.get(SUBJECT)
        text += f"  {_number(own['algbw_gbps']):>6} {_number(own['busbw_gbps']):>6}" if own else f"  {'-':>6} {'-':>6}"
        if self._has_floor:
            share = floor_share(rows, SUBJECT, size)
            text += f" {100 * share:>6.0f}" if share is not None else f" {'-':>6}"
        return text + f"  {self._wrong(rows)}"

    def _wrong(self, rows: list[Row]) -> str:
        bad = [f"{row['implementation']}: {row['wrong']}" for row in rows if row["wrong"]]
        if bad:
            return "WRONG " + ", ".join(bad)
        return f"{0:>5}" if self._options.check else f"{'N/A':>5}"

    def closing(self, rows: list[Row]) -> str:
        """Geometric means and the floor."""
        lines = []
        for name, pairs in ratios(rows).items():
            mean = geometric_mean(ratio for _, ratio in pairs)
            fastest = geometric_mean(ratio for _, ratio in ratios(rows, "us_min")[name])
            halves = _halves(pairs, self._options.device)
            lines.append(
                f"{name} takes {_number(mean)} times as long as stretto"
                f" (geometric mean of {len(pairs)} sizes{halves}; by fastest batches {_number(fastest)})"
            )
        lines += self._floor_lines(rows)
        return "\n".join(lines)

    def _floor_lines(self, rows: list[Row]) -> list[str]:
        floors = [row for row in rows if row["implementation"] == FLOOR and row["bytes"] >= 1 << 20]
        if not floors:
            return []
        options, last = self._options, floors[-1]
        share = _copied(options.collective, last["bytes"], options.ranks)
        rate = share / last["us_median"] / 1000
        cross = f"{2 * (options.ranks - 1) / options.ranks:g} S"
        formula = _FLOOR_FORMULAS.get(options.collective, "reads S and writes S").format(cross=cross)
        lines = [
            f"floor: each of {options.ranks} ranks {formula};",
            f"  memcpy by as many threads does that at {_number(rate)} GB/s each"
            f" at {format_size(last['bytes'])}, faster where caches hold the data",
        ]
        reached = []
        for name in self._names:
            found = floor_share(rows, name, last["bytes"])
            reached += [f"{name} {100 * found:.0f} %"] if found is not None else []
        return lines + ([f"  of that speed at {format_size(last['bytes'])}: {', '.join(reached)}"] if reached else [])


def _copied(collective: str, size: int, ranks: int) -> float:
    """Bytes that one thread of the memcpy driver copies: benchmarks/memcpy_driver.cpp has the same table."""
    if collective in ("reduce_scatter", "all_gather", "reduce"):
        return size * (ranks + 1) / (2 * ranks)
    return size / ranks if collective in ("gather", "scatter") else size


def _halves(pairs: list[tuple[int, float]], device: str) -> str:
    """The same mean for small and for large sizes apart, where there are both."""
    limit = _SMALL_UP_TO[device]
    small = [ratio for size, ratio in pairs if size <= limit]
    large = [ratio for size, ratio in pairs if size > limit]
    if not small or not large:
        return ""
    return f"; {_number(geometric_mean(small))} up to {format_size(limit)}, {_number(geometric_mean(large))} above"
