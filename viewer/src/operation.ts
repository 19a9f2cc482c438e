// What one operation moved and how fast, in nccl-tests' terms: bytes of the larger buffer, bus bandwidth over the time in which
// data moved. The same arithmetic as in `stretto trace report`. Where it is not known when data began to move, times are bounds.

import { kCeColl, kColl, kKernelCh, kP2p, kProxyOp } from './events';
import { kFloorNs, type Lateness } from './lateness';
import type { Replays } from './replays';
import { listOf, type Store } from './store';

const kSizes: Readonly<Record<string, number>> = { char: 1, int: 4, float: 4, double: 8, half: 2, bool: 1 };
/** Collectives of which each rank has one part: nccl-tests counts all parts. */
const kParts = new Set(['allgather', 'reducescatter', 'alltoall', 'gather', 'scatter']);

// The operation before is hardly ever further away than this many events.
const kMostSearched = 100_000;

function bare(name: string): string {
  return name.replace(/^nccl/, '').replace(/_/g, '').toLowerCase();
}

/** Bytes of a data type as NCCL writes its name; 0 unknown. */
export function typeBytes(name: string): number {
  const word = bare(name);
  if (word.includes('e4m3') || word.includes('e5m2')) return 1;
  const bits = /(?:float|int)(\d+)/.exec(word);
  return bits === null ? (kSizes[word] ?? 0) : Number(bits[1]) / 8;
}

/** Bus bandwidth over algorithm bandwidth. */
export function busFactor(name: string, ranks: number): number {
  const word = bare(name);
  if (word === 'allreduce') return (2 * (ranks - 1)) / ranks;
  return kParts.has(word) ? (ranks - 1) / ranks : 1;
}

export interface Operation {
  /** NaN where the recording does not say. */
  readonly bytes: number;
  readonly elements: string;
  readonly how: string;
  readonly waited: number;
  readonly waitedFor: number;
  readonly transfer: number;
  /** GB/s; of sends and receives, what the program sees, else as the bus has it. */
  readonly bandwidth: number;
  /** Nobody knows when data began to move: it took no longer, and was no slower. */
  readonly bound: boolean;
}

function textOf(store: Store, column: string, row: number): string {
  const value = store.column(column)?.get(row) ?? 0;
  return value > 0 ? store.text(value) : '';
}

/** When this rank's part was done; NaN where the recording has no end of the work but only that it was enqueued. */
function endOf(store: Store, lateness: Lateness, row: number): number {
  if (lateness.endsWhenDone(row) && !store.open[row]) return store.end[row];
  const latest = (type: number): number => {
    let end = NaN;
    for (const child of listOf(store.children, row)) {
      if (store.type[child] === type && !store.open[child]) end = Number.isNaN(end) ? store.end[child] : Math.max(end, store.end[child]);
    }
    return end;
  };
  const kernels = latest(kKernelCh);
  return Number.isNaN(kernels) ? latest(kProxyOp) : kernels;
}

/**
 * When the collective before it on its communicator was done, behind which this one queued; -Infinity where that is not known.
 * Operations of one group may run beside each other.
 */
function queueEnd(store: Store, lateness: Lateness, row: number): number {
  const group = store.column('group');
  for (let before = row - 1; before >= Math.max(row - kMostSearched, 0); before--) {
    const type = store.type[before];
    if (store.context[before] !== store.context[row] || (type !== kColl && type !== kCeColl)) continue;
    if (group !== undefined && (group.exact(row) ?? 0n) > 0n && group.exact(before) === group.exact(row)) return -Infinity;
    const end = endOf(store, lateness, before);
    return Number.isNaN(end) ? -Infinity : end;
  }
  return -Infinity;
}

function largest(rows: Int32Array | readonly number[], value: (row: number) => number): number {
  let most = -Infinity;
  for (const row of rows) most = Math.max(most, value(row));
  return most;
}

/** What `source` (an operation or a call) says of its size. */
function sizeOf(store: Store, source: number): Pick<Operation, 'bytes' | 'elements' | 'how'> & { factor: number } {
  const ranks = store.bundle.contexts[store.context[source]]?.ranks ?? 0;
  const name = store.text(Math.max(store.function[source], 0));
  const count = store.column('count')?.get(source) ?? NaN;
  const type = textOf(store, 'data_type', source);
  const width = typeBytes(type);
  const isMessage = store.type[source] === kP2p;
  const channels = store.channel[source];
  const how = [textOf(store, 'algorithm', source), textOf(store, 'protocol', source), channels > 0 ? `${channels} channel${channels === 1 ? '' : 's'}` : ''];
  return {
    bytes: width > 0 && (ranks > 0 || isMessage) ? count * width * (kParts.has(bare(name)) ? ranks : 1) : NaN,
    elements: Number.isNaN(count) ? '' : `${count} × ${bare(type) || '?'}`,
    how: how.filter((part) => part !== '').join(', '),
    factor: isMessage ? 1 : busFactor(name, ranks),
  };
}

function made(size: ReturnType<typeof sizeOf>, transfer: number, rest: Pick<Operation, 'waited' | 'waitedFor' | 'bound'>): Operation {
  const { bytes, elements, how, factor } = size;
  const known = transfer > 0 ? transfer : NaN;
  return { bytes, elements, how, ...rest, transfer: known, bandwidth: (bytes / known) * factor };
}

function collectiveOf(store: Store, lateness: Lateness, row: number): Operation {
  const ranks = store.bundle.contexts[store.context[row]]?.ranks ?? 0;
  const collective = store.collectives.of[row];
  const last = collective < 0 ? NaN : lateness.last[collective];
  const rows = collective < 0 ? Int32Array.of() : listOf(store.collectives.rows, collective);
  const bound = collective >= 0 && !lateness.isExact(collective);
  const begin = bound ? Math.max(last, largest(rows, (one) => queueEnd(store, lateness, one))) : last;
  const transfer = rows.length === ranks ? largest(rows, (one) => endOf(store, lateness, one)) - begin : NaN;
  return made(sizeOf(store, row), transfer, {
    waited: last - lateness.arrival(row), waitedFor: collective < 0 ? -1 : lateness.lastRow[collective], bound,
  });
}

/** A send or receive: its own times hold the wait for the other side. */
function messageOf(store: Store, lateness: Lateness, row: number): Operation {
  const kernel = listOf(store.children, row).find((child) => store.type[child] === kKernelCh);
  const begin = store.start[kernel ?? row];
  return made(sizeOf(store, row), endOf(store, lateness, row) - begin, { waited: NaN, waitedFor: -1, bound: true });
}

/** One kernel of an operation that a graph replayed: the call that was captured says what it is. */
function replayOf(store: Store, lateness: Lateness, replays: Replays, peers: readonly number[], row: number): Operation {
  const call = store.parent[row];
  const ranks = store.bundle.contexts[store.context[call]]?.ranks ?? 0;
  const last = largest(peers, (one) => store.start[one]);
  const transfer = peers.length === ranks ? largest(peers, (one) => (store.open[one] ? NaN : store.end[one])) - last : NaN;
  // Nobody is named where a rank is missing, the clocks can be wrong by as much, or ranks had not met before.
  const latest = peers.find((one) => store.start[one] === last)!;
  const isApart = (one: number): boolean => last - store.start[one] - lateness.clocks.error(one, latest) > kFloorNs;
  const isStartup = replays.numberOf(row) === 1 && !lateness.haveMet(peers.map((one) => store.parent[one]), last);
  const isClear = peers.length === ranks && !isStartup && peers.every((one) => one === latest || isApart(one));
  const waitedFor = isClear && ranks > 1 ? latest : -1;
  return made(sizeOf(store, call), transfer, { waited: last - store.start[row], waitedFor, bound: false });
}

/** Of one rank's part of a collective, of a send or receive, or of the first block of an operation that was replayed; else null. */
export function operationOf(store: Store, lateness: Lateness, replays: Replays, row: number): Operation | null {
  const type = store.type[row];
  if (type === kColl || type === kCeColl) return collectiveOf(store, lateness, row);
  if (type === kP2p) return messageOf(store, lateness, row);
  const peers = replays.of(row);
  return peers.length > 0 ? replayOf(store, lateness, replays, peers, row) : null;
}
