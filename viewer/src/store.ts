// A bundle made ready for drawing: the columns that every frame reads as typed arrays, and the relations between events
// (children of a parent, states of an event, ranks of a collective) as offsets into one array each. Changes nothing later.

import { BundleError, type Bundle, type Column, type ContextRecord, type Table } from './bundle';
import { kCeColl, kColl } from './events';

/** Many lists in two arrays: list k is `items[offsets[k]]` up to `items[offsets[k + 1]]`. */
export interface Lists {
  readonly offsets: Int32Array;
  readonly items: Int32Array;
}

export function listOf(lists: Lists, index: number): Int32Array {
  return lists.items.subarray(lists.offsets[index], lists.offsets[index + 1]);
}

/** Sorts items 0..n-1 into lists by `owner` (a negative owner: into none), keeping their order. */
export function groupBy(owner: ArrayLike<number>, lists: number): Lists {
  const offsets = new Int32Array(lists + 1);
  for (let item = 0; item < owner.length; item++) if (owner[item] >= 0) offsets[owner[item] + 1]++;
  for (let list = 0; list < lists; list++) offsets[list + 1] += offsets[list];
  const items = new Int32Array(offsets[lists]);
  const next = offsets.slice(0, lists);
  for (let item = 0; item < owner.length; item++) if (owner[item] >= 0) items[next[owner[item]]++] = item;
  return { offsets, items };
}

export interface Collectives {
  /** Of each row, the collective it belongs to; -1 none. */
  readonly of: Int32Array;
  readonly rows: Lists;
  readonly count: number;
}

export interface Communicator {
  readonly id: string;
  readonly name: string;
  /** As many as it has; -1 where no rank says so. */
  readonly ranks: number;
  /** Ranks of which there is a recording. */
  readonly recorded: number;
  /** Whether that is all of them. */
  readonly complete: boolean;
  /** Some of those that are not recorded, lowest first. */
  readonly missing: readonly number[];
}

const kMostMissing = 1000;

function communicatorOf(contexts: readonly ContextRecord[]): Communicator {
  const ranks = new Set(contexts.map(({ rank }) => rank));
  const said = contexts.reduce((most, one) => Math.max(most, one.ranks), -1);
  const missing: number[] = [];
  for (let rank = 0; rank < said && missing.length < kMostMissing; rank++) if (!ranks.has(rank)) missing.push(rank);
  const { communicator: id, name } = contexts.find((one) => one.name !== '') ?? contexts[0];
  return { id, name, ranks: said, recorded: ranks.size, complete: said === ranks.size, missing };
}

export class Store {
  readonly rows: number;
  readonly start: Float64Array;
  /** Where the bar ends: the stop, or for what never stopped its parent's end or that of its process. */
  readonly end: Float64Array;
  /** 1 where the event never stopped. */
  readonly open: Uint8Array;
  readonly type: Uint8Array;
  readonly process: Int32Array;
  readonly thread: Int32Array;
  readonly context: Int32Array;
  readonly rank: Int32Array;
  readonly channel: Int32Array;
  readonly parent: Int32Array;
  readonly function: Int32Array;
  readonly sequence: Float64Array;
  readonly children: Lists;
  readonly states: Lists;
  readonly stateTime: Float64Array;
  readonly stateNumber: Int32Array;
  readonly collectives: Collectives;
  /** Communicators by their number; `communicatorOf` says which one a context belongs to. */
  readonly communicators: Communicator[] = [];
  readonly communicatorOf: Int32Array;
  readonly first: number;
  readonly last: number;

  constructor(readonly bundle: Bundle) {
    const spans = bundle.spans;
    this.rows = spans.rows;
    this.start = doubles(spans, 'start', 0);
    this.type = Uint8Array.from(integers(spans, 'type', 255));
    this.process = bounded(integers(spans, 'process', -1), bundle.processes.length);
    this.thread = bounded(integers(spans, 'thread', -1), bundle.threads.length);
    this.context = bounded(integers(spans, 'context', -1), bundle.contexts.length);
    this.rank = integers(spans, 'rank', -1);
    this.channel = integers(spans, 'channel', -1);
    this.parent = bounded(integers(spans, 'parent_row', -1), this.rows);
    this.function = bounded(integers(spans, 'function', 0), bundle.strings.length);
    this.sequence = doubles(spans, 'sequence', -1);
    this.checkOrder();
    this.open = new Uint8Array(this.rows);
    this.end = this.ends();
    [this.first, this.last] = this.range();
    this.children = groupBy(this.parent, this.rows);
    const owner = bounded(integers(bundle.states, 'span', -1), this.rows);
    this.states = groupBy(owner, this.rows);
    this.stateTime = doubles(bundle.states, 'time', 0);
    this.stateNumber = integers(bundle.states, 'state', -1);
    this.communicatorOf = this.numberCommunicators();
    this.collectives = this.joinCollectives();
  }

  text(index: number): string {
    return this.bundle.strings[index] ?? '';
  }

  column(name: string): Column | undefined {
    return this.bundle.spans.columns.get(name);
  }

  communicator(row: number): number {
    const context = this.context[row];
    return context < 0 ? -1 : this.communicatorOf[context];
  }

  /** How long it took; NaN where it never stopped. */
  duration(row: number): number {
    return this.open[row] ? NaN : this.end[row] - this.start[row];
  }

  private checkOrder(): void {
    for (let row = 1; row < this.rows; row++) {
      if (this.start[row] < this.start[row - 1]) {
        throw new BundleError('This recording is damaged: its events are out of order.');
      }
    }
  }

  private ends(): Float64Array {
    const durations = doubles(this.bundle.spans, 'duration', NaN);
    const ends = new Float64Array(this.rows);
    const lastOf = new Float64Array(this.bundle.processes.length + 1);
    for (let row = 0; row < this.rows; row++) {
      const duration = durations[row];
      this.open[row] = Number.isNaN(duration) ? 1 : 0;
      // A stop before the start is a suspect stamp: its bar has no width, its fields say what was recorded.
      ends[row] = this.start[row] + (duration > 0 ? duration : 0);
      const process = this.process[row] + 1;
      if (ends[row] > lastOf[process]) lastOf[process] = ends[row];
    }
    for (let row = 0; row < this.rows; row++) {
      if (this.open[row] === 0) continue;
      const parent = this.parent[row];
      const bound = parent >= 0 && !this.open[parent] && ends[parent] > this.start[row] ? ends[parent] : 0;
      ends[row] = bound > 0 ? bound : Math.max(lastOf[this.process[row] + 1], this.start[row]);
    }
    return ends;
  }

  /** From the first event to the last; with the making and ending of communicators where these are not far away. */
  private range(): [number, number] {
    if (this.rows === 0) return [0, 0];
    let last = this.start[0];
    for (let row = 0; row < this.rows; row++) if (this.end[row] > last) last = this.end[row];
    const first = this.start[0];
    const reach = (last - first) / 3;
    const near = this.bundle.contexts
      .flatMap((context) => [context.init, context.finalize])
      .filter((time) => time > first - reach && time < last + reach);
    return near.reduce(([from, to], time) => [Math.min(from, time), Math.max(to, time)], [first, last]);
  }

  private numberCommunicators(): Int32Array {
    const numbers = new Map<string, number>();
    const members: ContextRecord[][] = [];
    const of = Int32Array.from(this.bundle.contexts, (context) => {
      const number = numbers.get(context.communicator) ?? members.push([]) - 1;
      numbers.set(context.communicator, number);
      members[number].push(context);
      return number;
    });
    this.communicators.push(...members.map(communicatorOf));
    return of;
  }

  private joinCollectives(): Collectives {
    const of = new Int32Array(this.rows).fill(-1);
    const numbers = new Map<string, number>();
    for (let row = 0; row < this.rows; row++) {
      const type = this.type[row];
      if ((type !== kColl && type !== kCeColl) || this.context[row] < 0 || this.sequence[row] < 0) continue;
      const key = `${this.communicator(row)} ${type} ${this.function[row]} ${this.sequence[row]}`;
      const known = numbers.get(key);
      of[row] = known ?? numbers.size;
      if (known === undefined) numbers.set(key, numbers.size);
    }
    const count = this.separateTurns(of, numbers.size);
    return { of, rows: groupBy(of, count), count };
  }

  /**
   * A number that comes again on one rank (captured operations are not counted) is another collective: the ranks' first
   * ones belong together, their second ones, and so on. Returns how many collectives there are then.
   */
  private separateTurns(of: Int32Array, count: number): number {
    const rows = groupBy(of, count);
    const turns = new Int32Array(this.bundle.contexts.length);
    const counted = new Int32Array(this.bundle.contexts.length).fill(-1);
    let next = count;
    for (let collective = 0; collective < count; collective++) {
      const later: number[] = [];
      for (const row of listOf(rows, collective)) {
        const context = this.context[row];
        turns[context] = counted[context] === collective ? turns[context] + 1 : 0;
        counted[context] = collective;
        if (turns[context] > 0) of[row] = later[turns[context]] ??= next++;
      }
    }
    return next;
  }
}

function doubles(table: Table, name: string, missing: number): Float64Array {
  return table.columns.get(name)?.doubles(missing) ?? new Float64Array(table.rows).fill(missing);
}

function integers(table: Table, name: string, missing: number): Int32Array {
  return table.columns.get(name)?.integers(missing) ?? new Int32Array(table.rows).fill(missing);
}

/** Whatever points outside of what is there points nowhere. */
function bounded(values: Int32Array, count: number): Int32Array {
  for (let row = 0; row < values.length; row++) if (values[row] < 0 || values[row] >= count) values[row] = -1;
  return values;
}
