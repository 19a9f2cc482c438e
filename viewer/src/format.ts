// Times, numbers and ticks as people read them.

const kUnits: readonly (readonly [number, string])[] = [
  [1e9, 's'],
  [1e6, 'ms'],
  [1e3, 'µs'],
  [1, 'ns'],
];

/** A length of time with four significant digits: "1.234 ms". */
export function duration(ns: number): string {
  if (!Number.isFinite(ns)) return '';
  const [scale, unit] = kUnits.find(([size]) => Math.abs(ns) >= size) ?? [1, 'ns'];
  const value = ns / scale;
  const digits = scale === 1 ? 0 : Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value))));
  return `${value.toFixed(digits)} ${unit}`;
}

/** A moment, to the nanosecond, counted from the recording's origin: "1.234 567 890 s". */
export function moment(ns: number): string {
  const sign = ns < 0 ? '−' : '';
  const whole = Math.abs(Math.round(ns));
  const fraction = String(whole % 1e9).padStart(9, '0');
  return `${sign}${Math.floor(whole / 1e9)}.${fraction.replace(/(\d{3})(?=\d)/g, '$1 ')} s`;
}

/** Bytes by powers of 1024, as sizes of messages are said: "64 KB". */
export function bytes(value: number): string {
  if (!Number.isFinite(value)) return '';
  const power = Math.min(Math.floor(Math.log2(Math.max(value, 1)) / 10), 4);
  const scaled = value / 1024 ** power;
  return `${scaled < 10 && !Number.isInteger(scaled) ? scaled.toFixed(2) : Math.round(scaled * 10) / 10} ${['B', 'KB', 'MB', 'GB', 'TB'][power]}`;
}

/** Gigabytes (10^9) a second: "3.01 GB/s", "11.8 MB/s". */
export function rate(gigabytes: number): string {
  if (!Number.isFinite(gigabytes)) return '';
  return gigabytes >= 0.9995 ? `${gigabytes.toPrecision(3)} GB/s` : `${(gigabytes * 1000).toPrecision(3)} MB/s`;
}

const kInterpreters = /^(python[0-9.]*|bash|sh|env|node|perl|ruby|julia|time|nice|numactl|taskset)$/;

function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** What a command line runs, as people call it: the script and not its interpreter, without folders. */
export function shortProgram(command: string): string {
  const words = command.split(/\s+/).filter((word) => word !== '');
  if (words.length === 0) return '';
  if (!kInterpreters.test(baseName(words[0]))) return baseName(words[0]);
  for (let at = 1; at < words.length; at++) {
    if (words[at] === '-m' && at + 1 < words.length) return words[at + 1];
    if (words[at] === '-c') break;
    if (words[at] === '-W' || words[at] === '-X') at++;
    else if (!words[at].startsWith('-')) return baseName(words[at]);
  }
  return baseName(words[0]);
}

/** Digits in groups of three. */
export function grouped(value: number | bigint): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ' ');
}

/** The distance between ticks: 1, 2 or 5 times a power of ten, so that at most `most` fit into the span; at least 1 ns. */
export function tickStep(span: number, most: number): number {
  const raw = Math.max(span / Math.max(most, 1), 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = [1, 2, 5, 10].find((candidate) => candidate * power >= raw * (1 - 1e-9)) ?? 10;
  return factor * power;
}

export interface Tick {
  time: number;
  label: string;
}

/** Ticks between two moments. All labels have one unit, and just the digits that tell neighbours apart. */
export function ticks(from: number, to: number, most: number): Tick[] {
  const step = tickStep(to - from, most);
  const largest = Math.max(Math.abs(from), Math.abs(to));
  const [scale, unit] = kUnits.find(([size]) => step >= size || (size <= step * 1000 && largest >= size)) ?? [1, 'ns'];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9));
  const found: Tick[] = [];
  const last = Math.floor(to / step + 1e-9);
  for (let index = Math.ceil(from / step - 1e-9); index <= last && found.length <= most + 2; index++) {
    const value = (index * step) / scale;
    found.push({ time: index * step, label: `${value.toFixed(digits)} ${unit}` });
  }
  return found;
}
