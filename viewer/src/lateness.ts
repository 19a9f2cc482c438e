// Who came late: for each collective, when its ranks arrived, and who was last. A rank arrives when its kernel starts; where no
// kernel was recorded, when the operation was begun. Until the last rank has arrived the others wait; then data moves.

import { kCeColl, kColl, kKernelCh } from './events';
import { listOf, type Store } from './store';

// As `stretto trace report` decides it.
const kToleranceNs = 2000;
const kBroken = 0.05;
const kApartNs = 50_000;

/** The collectives of one communicator that have two ranks or more, in the order in which they were complete. */
export interface Lane {
  readonly communicator: number;
  readonly collectives: Int32Array;
  /** When the last rank arrived, and how long after the first. */
  readonly at: Float64Array;
  readonly late: Float64Array;
  readonly most: number;
}

export class Lateness {
  /** By collective: arrivals of its first and its last rank, NaN with fewer than two ranks; and the last one's row. */
  readonly first: Float64Array;
  readonly last: Float64Array;
  readonly lastRow: Int32Array;
  readonly lanes: Lane[];
  /** By communicator: its operations end on the host when they are done, and not when they were enqueued. */
  readonly synchronous: Uint8Array;
  private readonly kernels: Float64Array | null;

  constructor(private readonly store: Store) {
    const { count } = store.collectives;
    this.kernels = kernelStarts(store);
    this.first = new Float64Array(count).fill(NaN);
    this.last = new Float64Array(count).fill(NaN);
    this.lastRow = new Int32Array(count).fill(-1);
    for (let collective = 0; collective < count; collective++) this.measure(collective);
    this.lanes = this.makeLanes();
    this.synchronous = Uint8Array.from(store.communicators, () => 0);
    for (const lane of this.lanes) this.synchronous[lane.communicator] = Number(this.isSynchronous(lane));
  }

  /** When this row's rank arrived at its collective. */
  arrival(row: number): number {
    const kernel = this.kernels === null ? NaN : this.kernels[row];
    return Number.isNaN(kernel) ? this.store.start[row] : kernel;
  }

  hasKernel(row: number): boolean {
    return this.kernels !== null && !Number.isNaN(this.kernels[row]);
  }

  /** Whether the bar of an operation ends when the operation does. */
  endsWhenDone(row: number): boolean {
    const communicator = this.store.communicator(row);
    return communicator >= 0 && this.synchronous[communicator] === 1;
  }

  private measure(collective: number): void {
    const rows = listOf(this.store.collectives.rows, collective);
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
      return [{ communicator, collectives, at, late, most: late.reduce((a, b) => Math.max(a, b), 0) }];
    });
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
    if (collective < 0 || (!isKernel && !this.endsWhenDone(row))) return NaN;
    const end = Math.min(this.last[collective], store.end[row]);
    return end > store.start[row] ? end : NaN;
  }

  /** The collectives whose ranks arrived furthest apart, worst first. */
  worst(most: number, isShown: (row: number) => boolean): number[] {
    const all: number[] = [];
    for (let one = 0; one < this.last.length; one++) if (this.late(one) > 0 && isShown(this.lastRow[one])) all.push(one);
    return all.sort((a, b) => this.late(b) - this.late(a) || a - b).slice(0, most);
  }
}

/** Of each operation the start of its first kernel, NaN without one; null where the recording has no kernels. */
function kernelStarts(store: Store): Float64Array | null {
  let starts: Float64Array | null = null;
  for (let row = 0; row < store.rows; row++) {
    if (store.type[row] !== kKernelCh || store.parent[row] < 0) continue;
    starts ??= new Float64Array(store.rows).fill(NaN);
    const parent = store.parent[row];
    // Rows are in order of time: the first one counts.
    if (Number.isNaN(starts[parent])) starts[parent] = store.start[row];
  }
  return starts;
}
