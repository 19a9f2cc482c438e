// The bundle (FORMAT.md): bytes in, checked columns out. Nothing here trusts a length, a number or a name before it was
// compared with what is there; whatever is wrong becomes a BundleError, whose text is for people.

export class BundleError extends Error {}

export const kMagic = 'STRETVIW';
const kRecordedMagic = 'STRETREC';
const kHeaderBytes = 24;
const kMaxPayload = 2 ** 32;
const kMaxRows = 2 ** 28;
const kPiece = 1 << 20;

const kWidths: Readonly<Record<string, number>> = { u8: 1, u16: 2, u32: 4, f64: 8, u64: 8 };

interface ColumnHeader {
  name: string;
  type: string;
  offset: number;
  base: string;
  none: boolean;
  delta: boolean;
  text: boolean;
}

/** One column. `get` is for arithmetic (NaN: not recorded), `exact` for people (null: not recorded). */
export interface Column {
  readonly name: string;
  readonly text: boolean;
  get(row: number): number;
  exact(row: number): bigint | null;
  /** All rows as doubles, with `missing` where nothing was recorded. */
  doubles(missing: number): Float64Array;
  /** All rows as 32-bit integers, with `missing` where nothing was recorded or the number does not fit. */
  integers(missing: number): Int32Array;
}

export interface Table {
  readonly rows: number;
  readonly columns: ReadonlyMap<string, Column>;
}

export interface ProcessRecord {
  host: string;
  pid: number;
  program: string;
  error: string;
  fields: Record<string, unknown>;
}

export interface ThreadRecord {
  process: number;
  tid: number;
  name: string;
}

export interface ContextRecord {
  process: number;
  communicator: string;
  name: string;
  rank: number;
  ranks: number;
  /** When it was made and ended; NaN where that is not known. */
  init: number;
  finalize: number;
  fields: Record<string, unknown>;
}

export interface Bundle {
  title: string;
  originRealtimeNs: bigint;
  processes: ProcessRecord[];
  threads: ThreadRecord[];
  contexts: ContextRecord[];
  strings: string[];
  quality: Record<string, unknown>;
  spans: Table;
  states: Table;
}

type Stored = Uint8Array | Uint16Array | Uint32Array | Float64Array;

/** A column that holds numbers below 2^53 above its base. */
class NarrowColumn implements Column {
  private readonly baseNumber: number;
  private sums: Float64Array | null = null;

  constructor(
    readonly name: string,
    readonly text: boolean,
    private readonly stored: Stored,
    private readonly base: bigint,
    private readonly none: boolean,
    private readonly delta: boolean,
  ) {
    this.baseNumber = Number(base);
  }

  /** What stands above the base in this row; -1: not recorded. */
  private above(row: number): number {
    if (this.delta) return this.cumulative()[row];
    return this.none ? this.stored[row] - 1 : this.stored[row];
  }

  private cumulative(): Float64Array {
    if (this.sums === null) {
      const sums = new Float64Array(this.stored.length);
      let sum = 0;
      for (let row = 0; row < sums.length; row++) sums[row] = sum += this.stored[row];
      this.sums = sums;
    }
    return this.sums;
  }

  get(row: number): number {
    const above = this.above(row);
    return above < 0 ? NaN : this.baseNumber + above;
  }

  exact(row: number): bigint | null {
    const above = this.above(row);
    return above < 0 || !Number.isSafeInteger(above) ? null : this.base + BigInt(above);
  }

  doubles(missing: number): Float64Array {
    const base = this.baseNumber;
    if (this.delta) return this.cumulative().map((sum) => sum + base);
    const shift = this.none ? base - 1 : base;
    const least = this.none ? 1 : 0;
    const { stored } = this;
    const out = new Float64Array(stored.length);
    for (let row = 0; row < out.length; row++) out[row] = stored[row] < least ? missing : stored[row] + shift;
    return out;
  }

  integers(missing: number): Int32Array {
    const out = new Int32Array(this.stored.length);
    const stored = this.delta ? this.cumulative() : this.stored;
    const shift = this.none ? this.baseNumber - 1 : this.baseNumber;
    const least = this.none ? 1 : 0;
    for (let row = 0; row < out.length; row++) {
      const value = stored[row] + shift;
      out[row] = stored[row] < least || value !== (value | 0) ? missing : value;
    }
    return out;
  }
}

/** A column of any 64-bit numbers: low words and high words. */
class WideColumn implements Column {
  constructor(
    readonly name: string,
    readonly text: boolean,
    private readonly low: Uint32Array,
    private readonly high: Uint32Array,
    private readonly none: boolean,
  ) {}

  get(row: number): number {
    if (this.none && this.low[row] === 0xffffffff && this.high[row] === 0xffffffff) return NaN;
    return this.high[row] * 2 ** 32 + this.low[row];
  }

  exact(row: number): bigint | null {
    if (Number.isNaN(this.get(row))) return null;
    return (BigInt(this.high[row]) << 32n) | BigInt(this.low[row]);
  }

  doubles(missing: number): Float64Array {
    const out = new Float64Array(this.low.length);
    for (let row = 0; row < out.length; row++) {
      const value = this.get(row);
      out[row] = Number.isNaN(value) ? missing : value;
    }
    return out;
  }

  integers(missing: number): Int32Array {
    return Int32Array.from(this.doubles(missing), (value) => (value === (value | 0) ? value : missing));
  }
}

function damaged(what: string): BundleError {
  return new BundleError(`This recording is damaged: ${what}. Make the page again with "stretto trace view".`);
}

function asObject(value: unknown, what: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw damaged(`${what} is missing`);
  return value as Record<string, unknown>;
}

function asArray(value: unknown, what: string): unknown[] {
  if (!Array.isArray(value)) throw damaged(`${what} is missing`);
  return value;
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function asWhole(value: unknown, least: number, most: number, what: string): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < least || value > most) {
    throw damaged(`${what} is not what it can be`);
  }
  return value;
}

function asBig(value: unknown, what: string): bigint {
  if (typeof value !== 'string' || !/^-?[0-9]{1,20}$/.test(value)) throw damaged(`${what} is not a number`);
  return BigInt(value);
}

function columnHeader(value: unknown, table: string): ColumnHeader {
  const item = asObject(value, `a column of ${table}`);
  const name = asText(item['name']).slice(0, 64);
  const type = asText(item['type']);
  if (name === '' || !Object.hasOwn(kWidths, type)) throw damaged(`a column of ${table} has no name or no type`);
  const offset = asWhole(item['offset'], 0, kMaxPayload, `the place of column ${name}`);
  if (offset % 8 !== 0) throw damaged(`the place of column ${name} is not what it can be`);
  return {
    name,
    type,
    offset,
    base: asBig(item['base'], `the base of column ${name}`).toString(),
    none: item['none'] === true,
    delta: item['delta'] === true,
    text: item['text'] === true,
  };
}

function openColumn(header: ColumnHeader, rows: number, area: Uint8Array): Column {
  const bytes = rows * kWidths[header.type];
  if (header.offset + bytes > area.byteLength) throw damaged(`column ${header.name} is longer than the file`);
  const at = area.byteOffset + header.offset;
  const buffer = area.buffer as ArrayBuffer;
  if (header.type === 'u64') {
    const low = new Uint32Array(buffer, at, rows);
    return new WideColumn(header.name, header.text, low, new Uint32Array(buffer, at + 4 * rows, rows), header.none);
  }
  let stored: Stored;
  if (header.type === 'u8') stored = new Uint8Array(buffer, at, rows);
  else if (header.type === 'u16') stored = new Uint16Array(buffer, at, rows);
  else if (header.type === 'u32') stored = new Uint32Array(buffer, at, rows);
  else stored = new Float64Array(buffer, at, rows);
  if (header.type === 'f64' && !stored.every((value) => Number.isSafeInteger(value) && value >= 0)) {
    throw damaged(`column ${header.name} holds no whole numbers`);
  }
  return new NarrowColumn(header.name, header.text, stored, BigInt(header.base), header.none, header.delta);
}

function openTable(value: unknown, name: string, area: Uint8Array): Table {
  const table = asObject(value, `the table ${name}`);
  const rows = asWhole(table['rows'], 0, kMaxRows, `the number of ${name}`);
  const columns = new Map<string, Column>();
  if (rows > 0) {
    for (const item of asArray(table['columns'], `the columns of ${name}`).slice(0, 256)) {
      const header = columnHeader(item, name);
      columns.set(header.name, openColumn(header, rows, area));
    }
  }
  return { rows, columns };
}

function numberOr(value: unknown, otherwise: number): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : otherwise;
}

function openProcess(value: unknown): ProcessRecord {
  const fields = asObject(value, 'a process');
  const { host, pid, program, error } = fields;
  return { host: asText(host), pid: numberOr(pid, -1), program: asText(program), error: asText(error), fields };
}

function openThread(value: unknown, processes: number): ThreadRecord {
  const item = asObject(value, 'a thread');
  const process = asWhole(item['process'], 0, processes - 1, "a thread's process");
  return { process, tid: numberOr(item['tid'], -1), name: asText(item['name']) };
}

function openContext(value: unknown, processes: number): ContextRecord {
  const fields = asObject(value, 'a communicator');
  return {
    process: asWhole(fields['process'], 0, processes - 1, "a communicator's process"),
    communicator: asText(fields['communicator']),
    name: asText(fields['name']),
    rank: numberOr(fields['rank'], -1),
    ranks: numberOr(fields['ranks'], -1),
    init: numberOr(fields['init_ns'], NaN),
    finalize: fields['finalize_ns'] === -1 ? NaN : numberOr(fields['finalize_ns'], NaN),
    fields,
  };
}

/** The inflated payload as a bundle. */
export function openPayload(payload: Uint8Array): Bundle {
  if (payload.byteLength < 4) throw damaged('it ends before it begins');
  const headerBytes = new DataView(payload.buffer, payload.byteOffset).getUint32(0, true);
  if (4 + headerBytes > payload.byteLength) throw damaged('its table of contents is longer than the file');
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(payload.subarray(4, 4 + headerBytes)));
  } catch {
    throw damaged('its table of contents cannot be read');
  }
  const header = asObject(parsed, 'the table of contents');
  if (header['schema'] !== 'stretto.view/1') {
    throw new BundleError('This recording was written for another version of the viewer. Make the page again.');
  }
  const area = payload.subarray(Math.min(Math.ceil((4 + headerBytes) / 8) * 8, payload.byteLength));
  const processes = asArray(header['processes'], 'the list of processes').map(openProcess);
  return {
    title: asText(header['title']),
    originRealtimeNs: asBig(header['origin_realtime_ns'], 'the origin of time'),
    processes,
    threads: asArray(header['threads'], 'the list of threads').map((item) => openThread(item, processes.length)),
    contexts: asArray(header['contexts'], 'the list of communicators').map((i) => openContext(i, processes.length)),
    strings: asArray(header['strings'], 'the list of texts').map(asText),
    quality: asObject(header['quality'], 'the quality section'),
    spans: openTable(header['spans'], 'spans', area),
    states: openTable(header['states'], 'states', area),
  };
}

async function inflate(packed: Uint8Array, bytes: number): Promise<Uint8Array> {
  const out = new Uint8Array(bytes);
  const source = new ReadableStream<Uint8Array<ArrayBuffer>>({
    start(controller) {
      for (let from = 0; from < packed.byteLength; from += kPiece) {
        controller.enqueue(packed.subarray(from, from + kPiece) as Uint8Array<ArrayBuffer>);
      }
      controller.close();
    },
  });
  const reader = source.pipeThrough(new DecompressionStream('deflate')).getReader();
  let at = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (at + value.byteLength > bytes) throw damaged('it is longer than it says');
      out.set(value, at);
      at += value.byteLength;
    }
  } catch (error) {
    if (error instanceof BundleError) throw error;
    throw damaged('its contents cannot be unpacked; it may have been cut off');
  }
  if (at !== bytes) throw damaged('it was cut off');
  return out;
}

/** A whole bundle, as it stands in a file or, decoded from base64, in the page. */
export async function decodeBundle(file: Uint8Array): Promise<Bundle> {
  if (file.byteLength === 0) throw new BundleError('This file is empty.');
  const magic = String.fromCharCode(...file.subarray(0, kMagic.length));
  if (magic === kRecordedMagic) {
    throw new BundleError(
      'This is one file of a recording (.rec), which only "stretto trace view FOLDER" reads. Drop the page that it makes of the ' +
        "recording's folder, or the .stretview file that its option -o x.stretview writes.",
    );
  }
  if (magic !== kMagic) {
    throw new BundleError(
      'This is not a recording for the viewer. Drop a page or a .stretview file that "stretto trace view" made.',
    );
  }
  if (file.byteLength < kHeaderBytes) throw damaged('it was cut off');
  const view = new DataView(file.buffer, file.byteOffset, kHeaderBytes);
  const version = view.getUint32(8, true);
  if (version !== 1) throw new BundleError(`This recording has format version ${version}; this viewer reads version 1.`);
  const bytes = Number(view.getBigUint64(16, true));
  // Deflate makes nothing more than 1032 times smaller: whatever says so lies, and gets no memory.
  if (bytes > kMaxPayload || bytes > 1100 * (file.byteLength - kHeaderBytes) + 64) throw damaged('its size is not what it can be');
  return openPayload(await inflate(file.subarray(kHeaderBytes), bytes));
}

const kDigits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

/** Base64 (standard alphabet, padded); white space around it is allowed. */
export function decodeBase64(text: string): Uint8Array {
  const trimmed = text.trim();
  const native = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array }).fromBase64;
  try {
    if (native !== undefined) return native.call(Uint8Array, trimmed);
    return decodeBase64Slowly(trimmed);
  } catch {
    throw damaged('its text cannot be decoded');
  }
}

function decodeBase64Slowly(text: string): Uint8Array {
  if (text.length % 4 !== 0) throw damaged('its text was cut off');
  const values = new Uint8Array(256).fill(255);
  for (let digit = 0; digit < 64; digit++) values[kDigits.charCodeAt(digit)] = digit;
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  const out = new Uint8Array((text.length / 4) * 3 - padding);
  const digits = text.length - padding;
  let bits = 0;
  let held = 0;
  let at = 0;
  for (let index = 0; index < digits; index++) {
    const value = values[text.charCodeAt(index) & 255];
    if (value === 255 || text.charCodeAt(index) > 127) throw damaged('its text cannot be decoded');
    held = ((held << 6) | value) & 0xffffff;
    bits += 6;
    if (bits >= 8) out[at++] = (held >> (bits -= 8)) & 255;
  }
  return out;
}

const kMark = /<script type="application\/octet-stream" id="recording">([A-Za-z0-9+/=\s]*)<\/script>/;

/** What was dropped on the page: a page that "stretto trace view" made, or a bare bundle. */
export function bundleOfFile(file: Uint8Array): Uint8Array {
  const begins = new TextDecoder().decode(file.subarray(0, 64)).trimStart().toLowerCase();
  if (!begins.startsWith('<!doctype html')) return file;
  const found = kMark.exec(new TextDecoder().decode(file));
  if (found === null) throw new BundleError('This page holds no recording.');
  return decodeBase64(found[1]);
}
