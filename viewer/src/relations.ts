// Who belongs to whom: ancestors, descendants, and the other ranks of the same collective. All walks are bounded, because
// a damaged recording may hold circles.

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

export function relativesOf(store: Store, row: number, most = 20000): Relatives {
  const ancestors = ancestorsOf(store, row);
  const { rows, cut } = descendantsOf(store, row, most);
  return { ancestors, descendants: rows, peers: peersOf(store, row, ancestors), cut };
}
