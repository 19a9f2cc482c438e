// Replays of graphs: a captured operation is called once and runs whenever its graph is replayed. Stretto's kernels then say with a
// state of their own which operation of the communicator they are. Looked up for pinned events alone, so made when first asked for.

import { kCollApi, kKernelCh } from './events';
import { listOf, type Store } from './store';

const kReplayed = 1000;

export class Replays {
  private rows: Map<string, number[]> | null = null;

  constructor(private readonly store: Store) {}

  /** The kernels of the same replayed operation, one of each rank in order of rank; none where this is no such kernel. */
  of(row: number): number[] {
    const key = this.keyOf(row);
    if (key === '') return [];
    this.rows ??= this.find();
    const rows = this.rows.get(key) ?? [];
    return rows.includes(row) ? rows : [];
  }

  /** Which operation of its communicator a replayed kernel is, from 1 on; NaN of others. */
  numberOf(row: number): number {
    const { store } = this;
    const state = listOf(store.states, row).find((one) => store.stateNumber[one] === kReplayed);
    return state === undefined ? NaN : (store.bundle.states.columns.get('argument')?.get(state) ?? NaN);
  }

  /** Communicator, function and number; empty where the event is no kernel of a replay. */
  private keyOf(row: number): string {
    const { store } = this;
    const call = store.parent[row];
    if (store.type[row] !== kKernelCh || call < 0 || store.type[call] !== kCollApi || store.context[call] < 0) return '';
    const number = this.numberOf(row);
    return number > 0 ? `${store.communicator(call)} ${store.function[call]} ${number}` : '';
  }

  /** An operation's first block has the communicator's number; those of its other blocks are their own. */
  private find(): Map<string, number[]> {
    const { store } = this;
    const lowest = new Map<number, number>();
    const found = new Map<string, number[]>();
    const kernels: [number, string][] = [];
    for (let row = 0; row < store.rows; row++) {
      const key = this.keyOf(row);
      if (key === '') continue;
      kernels.push([row, key]);
      lowest.set(store.parent[row], Math.min(lowest.get(store.parent[row]) ?? Infinity, store.channel[row]));
    }
    for (const [row, key] of kernels) {
      if (store.channel[row] !== lowest.get(store.parent[row])) continue;
      const rows = found.get(key);
      if (rows === undefined) found.set(key, [row]);
      else rows.push(row);
    }
    const rank = (row: number): number => store.bundle.contexts[store.context[store.parent[row]]].rank;
    for (const rows of found.values()) rows.sort((a, b) => rank(a) - rank(b) || a - b);
    return found;
  }
}
