// What one operation moved and how fast, in nccl-tests' terms: bytes of the larger buffer, bus bandwidth over the time in which
// data moved. The same arithmetic as in `stretto trace report`.

import { kCeColl, kColl, kKernelCh } from './events';
import type { Lateness } from './lateness';
import { listOf, type Store } from './store';

const kSizes: Readonly<Record<string, number>> = { char: 1, int: 4, float: 4, double: 8, half: 2, bool: 1 };
/** Collectives of which each rank has one part: nccl-tests counts all parts. */
const kParts = new Set(['allgather', 'reducescatter', 'alltoall', 'gather', 'scatter']);

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
  /** GB/s. */
  readonly bandwidth: number;
}

function textOf(store: Store, column: string, row: number): string {
  const value = store.column(column)?.get(row) ?? 0;
  return value > 0 ? store.text(value) : '';
}

/** When the last rank was done; NaN where the recording has no end of the work but only that it was enqueued. */
function endOf(store: Store, lateness: Lateness, rows: Int32Array): number {
  let end = NaN;
  for (const row of rows) {
    let own = lateness.endsWhenDone(row) && !store.open[row] ? store.end[row] : NaN;
    for (const child of listOf(store.children, row)) {
      if (store.type[child] === kKernelCh && !store.open[child]) own = Number.isNaN(own) ? store.end[child] : Math.max(own, store.end[child]);
    }
    if (Number.isNaN(own)) return NaN;
    end = Number.isNaN(end) ? own : Math.max(end, own);
  }
  return end;
}

/** Of a row that is one rank's part of a collective; null for everything else. */
export function operationOf(store: Store, lateness: Lateness, row: number): Operation | null {
  if (store.type[row] !== kColl && store.type[row] !== kCeColl) return null;
  const context = store.bundle.contexts[store.context[row]];
  const ranks = context?.ranks ?? 0;
  const name = store.text(Math.max(store.function[row], 0));
  const count = store.column('count')?.get(row) ?? NaN;
  const type = textOf(store, 'data_type', row);
  const width = typeBytes(type);
  const bytes = width > 0 && ranks > 0 ? count * width * (kParts.has(bare(name)) ? ranks : 1) : NaN;
  const collective = store.collectives.of[row];
  const last = collective < 0 ? NaN : lateness.last[collective];
  const rows = collective < 0 ? Int32Array.of() : listOf(store.collectives.rows, collective);
  const transfer = rows.length === ranks ? endOf(store, lateness, rows) - last : NaN;
  const channels = store.channel[row];
  const how = [textOf(store, 'algorithm', row), textOf(store, 'protocol', row), channels > 0 ? `${channels} channel${channels === 1 ? '' : 's'}` : ''];
  return {
    bytes,
    elements: Number.isNaN(count) ? '' : `${count} × ${bare(type) || '?'}`,
    how: how.filter((part) => part !== '').join(', '),
    waited: last - lateness.arrival(row),
    waitedFor: collective < 0 ? -1 : lateness.lastRow[collective],
    transfer: transfer > 0 ? transfer : NaN,
    bandwidth: transfer > 0 ? (bytes / transfer) * busFactor(name, ranks) : NaN,
  };
}
