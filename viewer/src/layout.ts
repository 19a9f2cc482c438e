// Lanes: host > process > communicator and rank > thread, and inside a thread one track per level of nesting. A track holds
// events that do not overlap, in order of time, so that what is under a pixel is found by bisection. Made anew whenever a
// filter changes; a million events take some tenths of a second.

import { kKernelCh, kKernelPhase, kLevels, levelOf } from './events';
import type { Lane as LatenessLane } from './lateness';
import { duration, shortProgram } from './format';
import type { Store } from './store';

export interface Filter {
  /** Types that are not shown. */
  readonly hiddenTypes: ReadonlySet<number>;
  /** Null: all. */
  readonly ranks: ((rank: number) => boolean) | null;
  readonly communicators: ReadonlySet<number> | null;
  /** Lanes of lateness of all communicators, and not of the worst alone. */
  readonly allLateness?: boolean;
}

export const kShowAll: Filter = { hiddenTypes: new Set(), ranks: null, communicators: null };

export interface Lane {
  readonly kind: 'host' | 'process' | 'member' | 'thread' | 'group' | 'lateness' | 'more';
  readonly key: string;
  readonly level: number;
  readonly label: string;
  readonly detail: string;
  readonly parent: number;
  /** Of members, the number of the context; -1 otherwise. */
  readonly context: number;
  /** Of lanes of lateness, what they show. */
  readonly lateness?: LatenessLane;
  /** Tracks firstTrack up to firstTrack + tracks; headers have none. */
  firstTrack: number;
  tracks: number;
}

/** Whether what is below a lane can be folded away by a press on it. */
export function isFoldable(lane: Lane): boolean {
  return lane.kind !== 'thread' && lane.kind !== 'lateness' && lane.kind !== 'more';
}

export interface Tracks {
  /** Track k holds places offsets[k] up to offsets[k + 1]. */
  readonly offsets: Int32Array;
  /** By place: the row, and copies of what drawing needs of it, so that memory is read in order. */
  readonly rows: Int32Array;
  readonly start: Float64Array;
  readonly end: Float64Array;
  readonly type: Uint8Array;
  /** busy[p]: the sum of lengths of all places before p. */
  readonly busy: Float64Array;
  /** Of each row, its track; -1 where it is not shown. */
  readonly of: Int32Array;
  /** Of each row, its place. */
  readonly place: Int32Array;
  readonly lane: Int32Array;
}

export interface Layout {
  readonly lanes: Lane[];
  readonly tracks: Tracks;
  readonly shown: number;
}

// More overlapping events than this share the last track: so many in one thread are noise or damage.
const kMostTracks = 64;
const kMostLateness = 12;

interface LaneKey {
  process: number;
  context: number;
  /** Thread, or -2 for the channels of kernels. */
  thread: number;
}

/** From keys to numbers: a table where there are few keys, which is several times faster. */
class Numbers {
  private readonly table: Int32Array | null;
  private readonly map = new Map<number, number>();

  constructor(keys: number) {
    this.table = keys <= 1 << 22 ? new Int32Array(keys).fill(-1) : null;
  }

  get(key: number): number {
    return this.table === null ? (this.map.get(key) ?? -1) : this.table[key];
  }

  set(key: number, number: number): void {
    if (this.table === null) this.map.set(key, number);
    else this.table[key] = number;
  }
}

/** Lanes of threads in order of their tree, and of each row its lane; -1 where the filter leaves it out. */
function assignLanes(store: Store, filter: Filter): { keys: LaneKey[]; laneOf: Int32Array } {
  const found: LaneKey[] = [];
  const laneOf = new Int32Array(store.rows).fill(-1);
  const threads = store.bundle.threads.length + 3;
  const contexts = store.bundle.contexts.length + 2;
  const numbers = new Numbers((store.bundle.processes.length + 1) * contexts * threads);
  const all = filter.hiddenTypes.size === 0 && filter.ranks === null && filter.communicators === null;
  for (let row = 0; row < store.rows; row++) {
    if (!all && !isShown(store, filter, row)) continue;
    const type = store.type[row];
    const thread = type === kKernelCh || type === kKernelPhase ? -2 : store.thread[row];
    const process = store.process[row];
    const key = ((process + 1) * contexts + store.context[row] + 1) * threads + thread + 2;
    let number = numbers.get(key);
    if (number < 0) {
      number = found.length;
      numbers.set(key, number);
      found.push({ process, context: store.context[row], thread });
    }
    laneOf[row] = number;
  }
  const order = found.map((_, index) => index).sort((a, b) => compareLanes(store, found[a], found[b]) || a - b);
  const place = new Int32Array(found.length);
  order.forEach((number, index) => (place[number] = index));
  for (let row = 0; row < store.rows; row++) if (laneOf[row] >= 0) laneOf[row] = place[laneOf[row]];
  return { keys: order.map((number) => found[number]), laneOf };
}

function isShown(store: Store, filter: Filter, row: number): boolean {
  if (filter.hiddenTypes.has(store.type[row])) return false;
  if (filter.ranks !== null && !filter.ranks(store.rank[row])) return false;
  return filter.communicators === null || filter.communicators.has(store.communicator(row));
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Host, then the lowest rank in the process, then communicators as they first appear, then threads; kernels last. */
function compareLanes(store: Store, a: LaneKey, b: LaneKey): number {
  const { processes, contexts } = store.bundle;
  const process = (key: LaneKey): string => processes[key.process]?.host ?? '';
  const communicator = (key: LaneKey): number => (key.context < 0 ? -1 : store.communicatorOf[key.context]);
  return (
    compareText(process(a), process(b)) ||
    lowestRank(store, a.process) - lowestRank(store, b.process) ||
    a.process - b.process ||
    communicator(a) - communicator(b) ||
    (contexts[a.context]?.rank ?? -1) - (contexts[b.context]?.rank ?? -1) ||
    a.context - b.context ||
    Number(a.thread === -2) - Number(b.thread === -2) ||
    a.thread - b.thread
  );
}

function lowestRank(store: Store, process: number): number {
  let lowest = Infinity;
  for (const context of store.bundle.contexts) {
    if (context.process === process && context.rank < lowest) lowest = context.rank;
  }
  return lowest === Infinity ? 1e9 : lowest;
}

/** The rows of a lane on tracks: a band of tracks for each level of NCCL's hierarchy, so that the same kind of event is at the
 * same height all along; in its band an event takes the first track that is free.
 */
class Nester {
  /** By lane and level: until when each track of that band is taken. */
  private readonly bands: number[][][] = [];
  private readonly band: Int16Array;
  readonly depth: Int16Array;

  constructor(
    private readonly store: Store,
    private readonly laneOf: Int32Array,
    lanes: number,
  ) {
    this.depth = new Int16Array(store.rows).fill(-1);
    this.band = new Int16Array(store.rows);
    for (let lane = 0; lane < lanes; lane++) this.bands.push(Array.from({ length: kLevels }, () => []));
  }

  place(row: number): void {
    const { start, end, type } = this.store;
    const taken = this.bands[this.laneOf[row]][levelOf(type[row])];
    let track = 0;
    while (track < taken.length && taken[track] > start[row]) track++;
    track = Math.min(track, kMostTracks - 1);
    taken[track] = Math.max(taken[track] ?? -Infinity, end[row]);
    this.band[row] = track;
  }

  /** Once all rows are placed: the bands of each lane one below the other. Gives the lanes' numbers of tracks. */
  stack(isLane: (lane: number) => boolean): number[] {
    const firsts = this.bands.map((levels) => {
      let next = 0;
      return levels.map((taken) => (next += taken.length) - taken.length);
    });
    for (let row = 0; row < this.depth.length; row++) {
      const lane = this.laneOf[row];
      if (lane >= 0 && isLane(lane)) this.depth[row] = firsts[lane][levelOf(this.store.type[row])] + this.band[row];
    }
    return this.bands.map((levels) => levels.reduce((sum, taken) => sum + taken.length, 0));
  }
}

/** Channels have a track each, so that the same channel is at the same height in all operations. */
function placeChannels(store: Store, rows: number[], depth: Int16Array): number {
  const channels = [...new Set(rows.map((row) => store.channel[row]))].sort((a, b) => a - b).slice(0, kMostTracks / 2);
  const index = new Map(channels.map((channel, at) => [channel, at]));
  const phases = rows.some((row) => store.type[row] === kKernelPhase);
  const each = phases && rows.some((row) => store.type[row] === kKernelCh) ? 2 : 1;
  for (const row of rows) {
    const at = index.get(store.channel[row]) ?? channels.length - 1;
    depth[row] = at * each + (each === 2 && store.type[row] === kKernelPhase ? 1 : 0);
  }
  return channels.length * each;
}

function nest(store: Store, keys: LaneKey[], laneOf: Int32Array): { depth: Int16Array; counts: number[] } {
  const nester = new Nester(store, laneOf, keys.length);
  const channelRows = new Map<number, number[]>();
  for (let row = 0; row < store.rows; row++) {
    const lane = laneOf[row];
    if (lane < 0) continue;
    if (keys[lane].thread !== -2) {
      nester.place(row);
      continue;
    }
    const rows = channelRows.get(lane);
    if (rows === undefined) channelRows.set(lane, [row]);
    else rows.push(row);
  }
  const counts = nester.stack((lane) => keys[lane].thread !== -2);
  for (const [lane, rows] of channelRows) counts[lane] = placeChannels(store, rows, nester.depth);
  return { depth: nester.depth, counts };
}

function fillTracks(store: Store, trackOf: Int32Array, tracks: number, laneOfTrack: Int32Array): Tracks {
  const offsets = new Int32Array(tracks + 1);
  for (let row = 0; row < store.rows; row++) if (trackOf[row] >= 0) offsets[trackOf[row] + 1]++;
  for (let track = 0; track < tracks; track++) offsets[track + 1] += offsets[track];
  const shown = offsets[tracks];
  const rows = new Int32Array(shown);
  const start = new Float64Array(shown);
  const end = new Float64Array(shown);
  const type = new Uint8Array(shown);
  const place = new Int32Array(store.rows).fill(-1);
  const next = offsets.slice(0, tracks);
  for (let row = 0; row < store.rows; row++) {
    if (trackOf[row] < 0) continue;
    const at = next[trackOf[row]]++;
    place[row] = at;
    rows[at] = row;
    start[at] = store.start[row];
    end[at] = store.end[row];
    type[at] = store.type[row];
  }
  const busy = new Float64Array(shown + 1);
  for (let at = 0; at < shown; at++) busy[at + 1] = busy[at] + end[at] - start[at];
  return { offsets, rows, start, end, type, busy, of: trackOf, place, lane: laneOfTrack };
}

/** A lane of lateness for each communicator that is shown, the worst first. Of many the others are one line that says so. */
function latenessLanes(store: Store, filter: Filter, all: readonly LatenessLane[]): Lane[] {
  const chosen = all
    .filter((one) => filter.communicators === null || filter.communicators.has(one.communicator))
    .sort((a, b) => b.most - a.most);
  if (chosen.length === 0) return [];
  const plain = { context: -1, firstTrack: -1, tracks: 0 };
  const lanes: Lane[] = [{ ...plain, kind: 'group', key: 'l', level: 0, label: 'lateness', detail: 'how far apart ranks arrived', parent: -1 }];
  const shown = filter.allLateness || chosen.length <= kMostLateness + 1 ? chosen.length : kMostLateness;
  for (const lateness of chosen.slice(0, shown)) {
    const { id, name, ranks, recorded, complete } = store.communicators[lateness.communicator];
    const detail = [complete ? '' : `${recorded} of ${ranks < 1 ? '?' : ranks} ranks`, name === '' ? '' : id].filter((part) => part !== '').join(' ');
    lanes.push({ ...plain, kind: 'lateness', key: `l:${lateness.communicator}`, level: 1, label: name === '' ? id : name, detail, parent: 0, lateness });
  }
  if (shown < chosen.length) {
    const detail = `up to ${duration(chosen[shown].most) || '0 ns'}`;
    lanes.push({ ...plain, kind: 'more', key: 'l:more', level: 1, label: `show ${chosen.length - shown} more communicators`, detail, parent: 0 });
  }
  return lanes;
}

export function layOut(store: Store, filter: Filter, lateness: readonly LatenessLane[] = []): Layout {
  const { keys, laneOf } = assignLanes(store, filter);
  const { depth, counts } = nest(store, keys, laneOf);
  const lanes = latenessLanes(store, filter, lateness);
  const firstTrack = new Int32Array(keys.length);
  let tracks = 0;
  const laneOfTrack: number[] = [];
  const tree = new LaneTree(store, lanes);
  keys.forEach((key, number) => {
    const lane = tree.thread(key, tracks, counts[number]);
    firstTrack[number] = tracks;
    for (let track = 0; track < counts[number]; track++) laneOfTrack.push(lane);
    tracks += counts[number];
  });
  const trackOf = new Int32Array(store.rows).fill(-1);
  for (let row = 0; row < store.rows; row++) if (laneOf[row] >= 0) trackOf[row] = firstTrack[laneOf[row]] + depth[row];
  const filled = fillTracks(store, trackOf, tracks, Int32Array.from(laneOfTrack));
  return { lanes, tracks: filled, shown: filled.rows.length };
}

/** Adds lanes with the headers above them, each header once. */
class LaneTree {
  private host = '';
  private process = -2;
  private context = -2;
  private at: [number, number, number] = [-1, -1, -1];

  constructor(
    private readonly store: Store,
    private readonly lanes: Lane[],
  ) {}

  thread(key: LaneKey, firstTrack: number, tracks: number): number {
    const { bundle } = this.store;
    const process = bundle.processes[key.process];
    const host = process?.host ?? '';
    if (this.at[0] < 0 || host !== this.host) {
      this.host = host;
      this.process = -2;
      this.at[0] = this.header('host', `h:${host}`, 0, host || 'host not known', '', -1);
    }
    if (key.process !== this.process) {
      this.process = key.process;
      this.context = -2;
      const label = process === undefined ? 'process not known' : `process ${process.pid}`;
      this.at[1] = this.header('process', `p:${key.process}`, 1, label, shortProgram(process?.program ?? ''), this.at[0]);
    }
    if (key.context !== this.context) {
      this.context = key.context;
      const [label, detail] = this.member(key.context);
      this.at[2] = this.header('member', `c:${key.process}:${key.context}`, 2, label, detail, this.at[1]);
    }
    const thread = bundle.threads[key.thread];
    const named = thread?.name ? `${thread.name}` : 'thread';
    const channels = this.store.column('seen_start') === undefined ? 'kernel channels' : 'kernel channels, GPU clock';
    const label = key.thread === -2 ? channels : thread === undefined ? 'thread not known' : named;
    const lane: Lane = {
      kind: 'thread',
      key: `t:${key.process}:${key.context}:${key.thread}`,
      level: 3,
      label,
      detail: thread === undefined || key.thread === -2 ? '' : `${thread.tid}`,
      parent: this.at[2],
      context: -1,
      firstTrack,
      tracks,
    };
    this.lanes.push(lane);
    return this.lanes.length - 1;
  }

  private member(context: number): [string, string] {
    const record = this.store.bundle.contexts[context];
    if (record === undefined) return ['no communicator', ''];
    const of = record.ranks > 0 ? ` of ${record.ranks}` : '';
    return [`rank ${record.rank}${of}`, `${record.name ? `${record.name} ` : ''}${record.communicator}`];
  }

  private header(kind: Lane['kind'], key: string, level: number, label: string, detail: string, parent: number): number {
    const context = kind === 'member' ? this.context : -1;
    this.lanes.push({ kind, key, level, label, detail, parent, context, firstTrack: -1, tracks: 0 });
    return this.lanes.length - 1;
  }
}
