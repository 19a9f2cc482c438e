// Who waited for whom between hosts: the steps of the proxies that moved an operation's chunks say how long each waited for data
// from the rank at the other side, or for room that it makes. The same sums as in `stretto trace report`, of one operation.

import { kProxyOp, kProxyStep } from './events';
import { listOf, type Store } from './store';

const kForData = 10;
const kForRoom = 20;

export interface ProxyWait {
  readonly rank: number;
  readonly peer: number;
  readonly what: 'data' | 'room';
  readonly ns: number;
  readonly chunks: number;
  /** The proxy's operation that waited longest. */
  readonly row: number;
}

/** How long a step was in a state. */
function timeIn(store: Store, step: number, wanted: number): number {
  const states = listOf(store.states, step);
  let sum = 0;
  states.forEach((state, at) => {
    if (store.stateNumber[state] !== wanted) return;
    const until = at + 1 < states.length ? store.stateTime[states[at + 1]] : store.end[step];
    sum += Math.max(until - store.stateTime[state], 0);
  });
  return sum;
}

/** Waits of these operations' proxies for other ranks, the longest first. */
export function proxyWaits(store: Store, operations: readonly number[]): ProxyWait[] {
  const found = new Map<string, ProxyWait & { most: number }>();
  const peers = store.column('peer');
  for (const operation of operations) {
    const rank = store.bundle.contexts[store.context[operation]]?.rank ?? store.rank[operation];
    for (const row of listOf(store.children, operation)) {
      const peer = peers?.get(row) ?? NaN;
      if (store.type[row] !== kProxyOp || !(peer >= 0)) continue;
      const steps = listOf(store.children, row).filter((step) => store.type[step] === kProxyStep);
      for (const [what, state] of [['data', kForData], ['room', kForRoom]] as const) {
        const ns = steps.reduce((sum, step) => sum + timeIn(store, step, state), 0);
        if (ns === 0) continue;
        const key = `${rank} ${peer} ${what}`;
        const before = found.get(key) ?? { ns: 0, chunks: 0, most: 0, row };
        const longest = ns > before.most ? row : before.row;
        found.set(key, { rank, peer, what, ns: before.ns + ns, chunks: before.chunks + steps.length, row: longest, most: Math.max(ns, before.most) });
      }
    }
  }
  return [...found.values()].sort((a, b) => b.ns - a.ns || a.rank - b.rank);
}
