// Who belongs to whom: ancestors, descendants, and the other ranks of the same collective. All walks are bounded, because
// a damaged recording may hold circles.

import { kGroup } from './events';
import { listOf, type Store } from './store';

export interface Relatives {
  /** Nearest first. */
  readonly ancestors: number[];
  readonly descendants: number[];
  /** Rows of the collective that this event, or its nearest ancestor that is one, belongs to; in order of rank. */
  readonly peers: number[];
  /** There were more descendants than are listed. */
  readonly cut: boolean;
}

const kDeepest = 64;

export function ancestorsOf(store: Store, row: number): number[] {
  const found: number[] = [];
  let at = store.parent[row];
  while (at >= 0 && at !== row && found.length < kDeepest && !found.includes(at)) {
    found.push(at);
    at = store.parent[at];
  }
  return found;
}

export function descendantsOf(store: Store, row: number, most: number): { rows: number[]; cut: boolean } {
  const found: number[] = [];
  const seen = new Set([row]);
  for (let next = -1; next < found.length; next++) {
    for (const child of listOf(store.children, next < 0 ? row : found[next])) {
      if (seen.has(child)) continue;
      if (found.length >= most) return { rows: found, cut: true };
      seen.add(child);
      found.push(child);
    }
  }
  return { rows: found, cut: false };
}

export function peersOf(store: Store, row: number, ancestors: number[]): number[] {
  for (const candidate of [row, ...ancestors]) {
    const collective = store.collectives.of[candidate];
    if (collective < 0) continue;
    const rows = Array.from(listOf(store.collectives.rows, collective));
    return rows.sort((a, b) => store.rank[a] - store.rank[b] || a - b);
  }
  return [];
}

/** The operations that were enqueued as one legacy Group: they name it, and it is not their parent. */
function membersOfGroup(store: Store, row: number): number[] {
  const id = store.column('id')?.exact(row) ?? null;
  const group = store.column('group');
  if (store.type[row] !== kGroup || id === null || group === undefined) return [];
  const found: number[] = [];
  // They begin within it.
  for (let at = row + 1; at < store.rows && store.start[at] <= store.end[row]; at++) {
    if (store.process[at] === store.process[row] && group.exact(at) === id) found.push(at);
  }
  return found;
}

function groupOf(store: Store, row: number): number {
  const id = store.column('group')?.exact(row) ?? 0n;
  const ids = store.column('id');
  if (id === 0n || id === null || ids === undefined) return -1;
  for (let at = row - 1; at >= 0; at--) {
    if (store.type[at] === kGroup && store.process[at] === store.process[row] && ids.exact(at) === id) return at;
  }
  return -1;
}

/** Of a call or a group that holds a collective: the calls or groups that hold it on the other ranks. */
function counterparts(store: Store, row: number, below: readonly number[]): number[] {
  const member = below.find((one) => store.collectives.of[one] >= 0);
  if (member === undefined) return [];
  const type = store.type[row];
  const found = new Set<number>();
  for (const peer of listOf(store.collectives.rows, store.collectives.of[member])) {
    const above = type === kGroup ? groupOf(store, peer) : (ancestorsOf(store, peer).find((one) => store.type[one] === type) ?? -1);
    if (above >= 0) found.add(above);
  }
  return [...found].sort((a, b) => store.rank[a] - store.rank[b] || a - b);
}

export function relativesOf(store: Store, row: number, most = 20000): Relatives {
  const ancestors = ancestorsOf(store, row);
  const { rows, cut } = descendantsOf(store, row, most);
  const descendants = [...rows, ...membersOfGroup(store, row)];
  const peers = peersOf(store, row, ancestors);
  return { ancestors, descendants, peers: peers.length > 0 ? peers : counterparts(store, row, descendants), cut };
}
