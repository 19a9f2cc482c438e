// Who came late: for each collective, when its ranks arrived, and who was last. A rank arrives when its kernel starts; where not
// all ranks have one recorded, when the operation was begun. Until the last rank has arrived the others wait; then data moves.
// Of each collective it is known as well why nobody can be named for it, by the rules of `stretto trace report`.

import { Clocks } from './clocks';
import { kCeColl, kColl, kKernelCh } from './events';
import { listOf, type Store } from './store';

// As `stretto trace report` decides it.
const kToleranceNs = 2000;
const kBroken = 0.05;
const kApartNs = 50_000;
export const kFloorNs = 1000;

/** Why the last rank of a collective is not named; kCertain: it is. */
export const kCertain = 0;
/** Its ranks had not met before: processes start at different times. */
export const kStartup = 1;
/** A rank is not recorded, and may have come later. */
export const kMissing = 2;
/** It is not recorded whether anybody waited, but only when the operation was handed over. */
export const kHandedOver = 3;
/** Another rank came last as well, as far as the clocks tell. */
export const kClose = 4;

/** The collectives of one communicator that have two ranks or more, in the order in which they were complete. */
export interface Lane {
  readonly communicator: number;
  readonly collectives: Int32Array;
  /** When the last rank arrived, and how long after the first. */
  readonly at: Float64Array;
  readonly late: Float64Array;
  /** The longest of those that are not start-up. */
  most: number;
}

export class Lateness {
  /** By collective: arrivals of its first and its last rank, NaN with fewer than two ranks; and the last one's row. */
  readonly first: Float64Array;
  readonly last: Float64Array;
  readonly lastRow: Int32Array;
  readonly lanes: Lane[];
  /** By communicator: its operations end on the host when they are done, and not when they were enqueued. */
  readonly synchronous: Uint8Array;
  /** By collective: why its last rank is not named. */
  readonly doubts: Uint8Array;
  /** By collective: how far the clocks can be wrong about its last rank, in ns. */
  readonly errors: Float64Array;
  readonly clocks: Clocks;
  /** Of each operation its first kernel, -1 without one; null where the recording has no kernels. */
  private readonly kernels: Int32Array | null;
  /** By collective: arrivals are those of kernels. */
  private readonly byKernel: Uint8Array;

  constructor(private readonly store: Store) {
    const { count } = store.collectives;
    this.clocks = new Clocks(store);
    this.kernels = firstKernels(store);
    this.byKernel = new Uint8Array(count);
    this.first = new Float64Array(count).fill(NaN);
    this.last = new Float64Array(count).fill(NaN);
    this.lastRow = new Int32Array(count).fill(-1);
    for (let collective = 0; collective < count; collective++) this.measure(collective);
    this.lanes = this.makeLanes();
    this.synchronous = Uint8Array.from(store.communicators, () => 0);
    for (const lane of this.lanes) this.synchronous[lane.communicator] = Number(this.isSynchronous(lane));
    this.doubts = new Uint8Array(count);
    this.errors = new Float64Array(count);
    this.findDoubts();
  }

  /** When this row's rank arrived at its collective. */
  arrival(row: number): number {
    return this.store.start[this.arrivalRow(row)];
  }

  /** The event whose start is that: the kernel, or the operation itself. */
  private arrivalRow(row: number): number {
    return this.kernels !== null && this.byKernel[this.store.collectives.of[row]] === 1 ? this.kernels[row] : row;
  }

  /** Whether the bar of an operation ends when the operation does. */
  endsWhenDone(row: number): boolean {
    const communicator = this.store.communicator(row);
    return communicator >= 0 && this.synchronous[communicator] === 1;
  }

  /** Whether arrivals are when ranks began to wait, and not when they handed the operation over. */
  isExact(collective: number): boolean {
    const row = this.lastRow[collective];
    return this.byKernel[collective] === 1 || (row >= 0 && this.endsWhenDone(row));
  }

  /** Whether the ranks of these rows were all in one collective before that time. */
  haveMet(rows: readonly number[], before: number): boolean {
    const crowded = crowdedOf(this.store);
    const here = [...workersOf(this.store, rows, crowded)];
    return this.lanes.some(({ collectives, at }) => {
      if (!(at[0] < before)) return false;
      const there = workersOf(this.store, listOf(this.store.collectives.rows, collectives[0]), crowded);
      return here.every((worker) => there.has(worker));
    });
  }

  private measure(collective: number): void {
    const rows = listOf(this.store.collectives.rows, collective);
    const { kernels } = this;
    this.byKernel[collective] = Number(kernels !== null && rows.every((row) => kernels[row] >= 0));
    if (rows.length < 2) return;
    let [first, last, lastRow] = [Infinity, -Infinity, -1];
    for (const row of rows) {
      const time = this.arrival(row);
      if (time < first) first = time;
      if (time > last) [last, lastRow] = [time, row];
    }
    this.first[collective] = first;
    this.last[collective] = last;
    this.lastRow[collective] = lastRow;
  }

  /** How long its first rank waited for its last one; NaN where that is not known. */
  late(collective: number): number {
    return this.last[collective] - this.first[collective];
  }

  private makeLanes(): Lane[] {
    const { store } = this;
    const found: number[][] = store.communicators.map(() => []);
    for (let collective = 0; collective < this.last.length; collective++) {
      if (this.lastRow[collective] >= 0) found[store.communicator(this.lastRow[collective])]?.push(collective);
    }
    return found.flatMap((list, communicator) => {
      if (list.length === 0) return [];
      const collectives = Int32Array.from(list).sort((a, b) => this.last[a] - this.last[b]);
      const at = Float64Array.from(collectives, (one) => this.last[one]);
      const late = Float64Array.from(collectives, (one) => this.late(one));
      return [{ communicator, collectives, at, late, most: 0 }];
    });
  }

  private findDoubts(): void {
    const { store, doubts } = this;
    const startup = startups(store, this.lanes);
    for (const lane of this.lanes) {
      const { communicator, collectives } = lane;
      const { complete, recorded } = store.communicators[communicator];
      for (const one of collectives) {
        const rows = listOf(store.collectives.rows, one);
        const isClear = this.isClear(one, rows);
        if (startup.has(one)) doubts[one] = kStartup;
        else if (!complete || rows.length < recorded) doubts[one] = kMissing;
        else if (!this.isExact(one)) doubts[one] = kHandedOver;
        else if (!isClear) doubts[one] = kClose;
        if (doubts[one] !== kStartup) lane.most = Math.max(lane.most, this.late(one));
      }
    }
  }

  /** Whether the last rank came after all others by more than the clocks can be wrong. */
  private isClear(collective: number, rows: Int32Array): boolean {
    const last = this.lastRow[collective];
    let isClear = true;
    for (const row of rows) {
      if (row === last) continue;
      const error = this.clocks.error(this.arrivalRow(row), this.arrivalRow(last));
      this.errors[collective] = Math.max(this.errors[collective], error);
      if (!(this.last[collective] - this.arrival(row) - error > kFloorNs)) isClear = false;
    }
    return isClear;
  }

  /**
   * The same event means either, and nothing in a recording says which. Time tells: where ranks came far apart, the early ones
   * were inside until the last one came, and next to no operation ended on a rank before another had begun it.
   */
  private isSynchronous(lane: Lane): boolean {
    if (this.kernels !== null) return false;
    const { store } = this;
    let [apart, waited, broken] = [0, 0, 0];
    for (const collective of lane.collectives) {
      let earliest = Infinity;
      for (const row of listOf(store.collectives.rows, collective)) earliest = Math.min(earliest, store.end[row]);
      if (earliest < this.last[collective] - kToleranceNs) broken++;
      if (this.late(collective) <= kApartNs) continue;
      apart++;
      if (earliest >= this.last[collective]) waited++;
    }
    return waited > (1 - kBroken) * apart && broken <= kBroken * lane.collectives.length;
  }

  /** Until when this bar waits for other ranks; NaN where it does not wait, or where its end says nothing of that. */
  waitEnd(row: number): number {
    const { store } = this;
    const type = store.type[row];
    const isKernel = type === kKernelCh;
    if (!isKernel && type !== kColl && type !== kCeColl) return NaN;
    const owner = isKernel ? store.parent[row] : row;
    const collective = owner < 0 ? -1 : store.collectives.of[owner];
    if (collective < 0 || (isKernel ? this.byKernel[collective] === 0 : !this.endsWhenDone(row))) return NaN;
    const end = Math.min(this.last[collective], store.end[row]);
    return end > store.start[row] ? end : NaN;
  }

  /** The collectives whose ranks arrived furthest apart, worst first: without those of start-up, or these alone. */
  worst(most: number, isShown: (row: number) => boolean, atStartup = false): number[] {
    const all: number[] = [];
    for (let one = 0; one < this.last.length; one++) {
      if (this.late(one) > 0 && (this.doubts[one] === kStartup) === atStartup && isShown(this.lastRow[one])) all.push(one);
    }
    return all.sort((a, b) => this.late(b) - this.late(a) || a - b).slice(0, most);
  }
}

function firstKernels(store: Store): Int32Array | null {
  let found: Int32Array | null = null;
  for (let row = 0; row < store.rows; row++) {
    if (store.type[row] !== kKernelCh || store.parent[row] < 0) continue;
    found ??= new Int32Array(store.rows).fill(-1);
    const parent = store.parent[row];
    // Rows are in order of time: the first one counts.
    if (found[parent] < 0) found[parent] = row;
  }
  return found;
}

/** Processes that have several ranks of one communicator. */
function crowdedOf(store: Store): Set<number> {
  const seen = new Set<string>();
  const crowded = new Set<number>();
  store.bundle.contexts.forEach(({ process }, context) => {
    const key = `${process} ${store.communicatorOf[context]}`;
    if (seen.has(key)) crowded.add(process);
    seen.add(key);
  });
  return crowded;
}

/** Who stands behind each row of a collective: its process, and where that has several ranks, the thread that serves this one. */
function workersOf(store: Store, rows: Int32Array | readonly number[], crowded: ReadonlySet<number>): Set<string> {
  return new Set(Array.from(rows, (row) => (crowded.has(store.process[row]) ? `${store.process[row]}:${store.thread[row]}` : `${store.process[row]}`)));
}

/**
 * The first collective of each communicator whose ranks were not all together in an earlier one, where the recording has the
 * communicator's beginning. Processes start at different times: nobody is to blame for that.
 */
function startups(store: Store, lanes: readonly Lane[]): Set<number> {
  const crowded = crowdedOf(store);
  const found = new Set<number>();
  const met = new Map<string, Set<string>[]>();
  for (const { collectives } of [...lanes].sort((a, b) => a.at[0] - b.at[0])) {
    const rows = listOf(store.collectives.rows, collectives[0]);
    const here = workersOf(store, rows, crowded);
    const [one] = here;
    if (met.get(one)?.some((earlier) => [...here].every((worker) => earlier.has(worker)))) continue;
    if (store.sequence[rows[0]] === 0) found.add(collectives[0]);
    for (const worker of here) met.set(worker, [...(met.get(worker) ?? []), here]);
  }
  return found;
}
