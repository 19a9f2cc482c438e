// Bundles for tests of the model, written as FORMAT.md says and independently of the writer in Python.

import { deflateSync } from 'node:zlib';

export interface Event {
  type: number;
  start: number;
  stop?: number;
  process?: number;
  thread?: number;
  context?: number;
  rank?: number;
  parent?: number;
  function?: number;
  sequence?: number;
  channel?: number;
  id?: number;
  count?: number;
  group?: number;
  data_type?: number;
  algorithm?: number;
  peer?: number;
  /** Kernels on a GPU's clock: how well that is known, to hosts and among GPUs. */
  clock_error?: number;
  gpu_error?: number;
}

export interface State {
  span: number;
  time: number;
  state: number;
  argument?: number;
}

export interface Contents {
  events: Event[];
  states?: State[];
  processes?: object[];
  threads?: object[];
  contexts?: object[];
  strings?: string[];
  quality?: object;
}

interface Written {
  name: string;
  type: string;
  offset: number;
  base: string;
  none: boolean;
  delta: boolean;
  text: boolean;
}

/** Columns as doubles with base -1 and "not recorded": plain, and any number from -1 on. */
class Area {
  readonly parts: Buffer[] = [];
  bytes = 0;

  column(name: string, values: (number | undefined)[], text = false): Written {
    const stored = Float64Array.from(values, (value) => (value === undefined ? 0 : value + 2));
    const written = { name, type: 'f64', offset: this.bytes, base: '-1', none: true, delta: false, text };
    this.parts.push(Buffer.from(stored.buffer));
    this.bytes += stored.byteLength;
    return written;
  }
}

const kProcess = { host: 'node0', pid: 100, program: 'test', error: '', closed: true };
const kContext = { process: 0, communicator: '0xabc', name: 'dp0', rank: 0, ranks: 2 };

export function headerOf(contents: Contents, area: Area): Record<string, unknown> {
  const { events, states = [] } = contents;
  const column = (name: keyof Event, text = false): Written => area.column(name, events.map((one) => one[name]), text);
  // Left out where no event has it, as the writer does.
  const rare = (['peer', 'clock_error', 'gpu_error'] as const).filter((name) => events.some((one) => one[name] !== undefined));
  return {
    schema: 'stretto.view/1',
    title: 'test',
    origin_realtime_ns: '1763700000000000000',
    processes: contents.processes ?? [kProcess],
    threads: contents.threads ?? [{ process: 0, tid: 1, name: 'main' }, { process: 0, tid: 2, name: 'progress' }],
    contexts: contents.contexts ?? [kContext, { ...kContext, rank: 1 }],
    strings: contents.strings ?? ['', 'AllReduce', 'Broadcast'],
    quality: contents.quality ?? { dropped: 0, notes: [] },
    spans: {
      rows: events.length,
      columns: [
        column('type'), column('start'), column('process'), column('thread'), column('context'), column('rank'),
        column('function', true), column('sequence'), column('channel'), column('id'),
        ...rare.map((name) => column(name)), column('count'), column('group'), column('data_type', true), column('algorithm', true),
        area.column('parent_row', events.map((one) => one.parent)),
        area.column('duration', events.map((one) => (one.stop === undefined ? undefined : one.stop - one.start))),
      ],
    },
    states: {
      rows: states.length,
      columns: [
        area.column('span', states.map((one) => one.span)),
        area.column('time', states.map((one) => one.time)),
        area.column('state', states.map((one) => one.state)),
        area.column('argument', states.map((one) => one.argument)),
      ],
    },
  };
}

export function payloadOf(contents: Contents, change: (header: Record<string, any>) => void = () => undefined): Uint8Array {
  const area = new Area();
  const header = headerOf(contents, area);
  change(header);
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(text.length);
  const padding = Buffer.alloc((8 - ((4 + text.length) % 8)) % 8);
  // A copy, so that it begins at a multiple of 8, as an inflated payload does.
  return new Uint8Array(Buffer.concat([length, text, padding, ...area.parts]));
}

export function pack(payload: Uint8Array, says = payload.byteLength): Uint8Array {
  const head = Buffer.alloc(24);
  head.write('STRETVIW', 'latin1');
  head.writeUInt32LE(1, 8);
  head.writeBigUInt64LE(BigInt(says), 16);
  return new Uint8Array(Buffer.concat([head, deflateSync(payload)]));
}

/** The same numbers in every run. */
export function randoms(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
