// What the page shows at the moment: window, selection, filters, search, marks. Views read it and redraw when it says so;
// nothing in here touches the page.

import { fieldsOf, titleOf } from './fields';
import { place, type Geometry } from './geometry';
import type { Place } from './hash';
import { layOut, type Filter, type Layout } from './layout';
import { Lateness } from './lateness';
import { relativesOf, type Relatives } from './relations';
import { Replays } from './replays';
import { parseQuery, parseRanks, search } from './search';
import { listOf, type Store } from './store';

export type Change = 'window' | 'hover' | 'selection' | 'layout' | 'search' | 'marks' | 'lines';

// Closer than this many nanoseconds across the screen there is nothing to see.
const kNarrowest = 20;

export class Session {
  layout: Layout;
  geometry: Geometry;
  from = 0;
  to = 1;
  scroll = 0;
  /** Height of what is seen of the lanes. */
  viewHeight = 600;
  hover = -1;
  selection = -1;
  relatives: Relatives | null = null;
  query = '';
  /** Why the search is not what it should be; empty where it is. */
  queryFault = '';
  /** What of the address that was opened says nothing here, until something else is chosen. */
  placeFaults: string[] = [];
  readonly lateness: Lateness;
  readonly replays: Replays;
  /** Whether the list of the worst collectives is open. */
  worst = false;
  matches: Int32Array | null = null;
  match = -1;
  marks: number[] = [];
  cursor = NaN;
  showParents = true;
  showCollectives = true;
  ranksText = '';
  readonly hidden = new Set<number>();
  communicators: Set<number> | null = null;
  readonly folded = new Set<string>();
  /** By place: how many of those before stand out; null: nothing in particular. */
  emphasis: Int32Array | null = null;
  private ranks: ((rank: number) => boolean) | null = null;
  private allLateness = false;
  private readonly listeners: ((change: Change) => void)[] = [];

  constructor(readonly store: Store) {
    this.lateness = new Lateness(store);
    this.replays = new Replays(store);
    this.layout = layOut(store, this.filter(), this.lateness.lanes);
    this.geometry = place(this.layout, this.folded);
    this.fitAll();
  }

  listen(listener: (change: Change) => void): void {
    this.listeners.push(listener);
  }

  private tell(change: Change): void {
    if (change === 'selection' || change === 'layout' || change === 'search') this.placeFaults = [];
    for (const listener of this.listeners) listener(change);
  }

  private filter(): Filter {
    return { hiddenTypes: this.hidden, ranks: this.ranks, communicators: this.communicators, allLateness: this.allLateness };
  }

  /** Filters changed: lanes are made anew. */
  private relay(): void {
    this.layout = layOut(this.store, this.filter(), this.lateness.lanes);
    this.replace();
    this.emphasise();
    this.hover = -1;
    this.tell('layout');
  }

  private replace(): void {
    this.geometry = place(this.layout, this.folded);
    this.scrollTo(this.scroll);
  }

  fold(key: string): void {
    if (!this.folded.delete(key)) this.folded.add(key);
    this.replace();
    this.tell('layout');
  }

  toggleType(type: number): void {
    if (!this.hidden.delete(type)) this.hidden.add(type);
    this.relay();
  }

  /** Only this type; all again when it was the only one. */
  soloType(type: number, all: readonly number[]): void {
    const alone = !this.hidden.has(type) && all.every((one) => one === type || this.hidden.has(one));
    this.hidden.clear();
    if (!alone) for (const one of all) if (one !== type) this.hidden.add(one);
    this.relay();
  }

  /** Why the text says no ranks; empty where it does. */
  setRanks(text: string): string {
    const test = parseRanks(text);
    if (typeof test === 'string') return test;
    this.ranksText = text.trim();
    this.ranks = test;
    this.relay();
    return '';
  }

  setCommunicators(chosen: Set<number> | null): void {
    this.communicators = chosen;
    this.relay();
  }

  /** Lanes of lateness of all communicators, where only the worst had one. */
  showAllLateness(): void {
    this.allLateness = true;
    this.relay();
  }

  setWindow(from: number, to: number): void {
    const { first, last } = this.store;
    const whole = Math.max(last - first, kNarrowest);
    const span = Math.min(Math.max(to - from, kNarrowest), whole * 1.5);
    const least = first - span * 0.8;
    const most = last + span * 0.8;
    const middle = (from + to) / 2;
    this.from = Math.min(Math.max(middle - span / 2, least), most - span);
    this.to = this.from + span;
    this.tell('window');
  }

  fitAll(): void {
    const { first, last } = this.store;
    const margin = Math.max((last - first) * 0.02, kNarrowest / 2);
    this.setWindow(first - margin, last + margin);
  }

  /** The selection with its relatives, or all. */
  fit(): void {
    if (this.selection < 0 || this.relatives === null) return this.fitAll();
    const { start, end } = this.store;
    let [from, to] = [start[this.selection], end[this.selection]];
    for (const row of [...this.relatives.descendants, ...this.relatives.peers]) {
      from = Math.min(from, start[row]);
      to = Math.max(to, end[row]);
    }
    const margin = Math.max((to - from) * 0.15, kNarrowest);
    this.setWindow(from - margin, to + margin);
  }

  zoom(factor: number, around: number): void {
    this.setWindow(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  pan(share: number): void {
    const shift = (this.to - this.from) * share;
    this.setWindow(this.from + shift, this.to + shift);
  }

  scrollTo(top: number): void {
    this.scroll = Math.max(0, Math.min(top, this.geometry.total - this.viewHeight));
    this.tell('window');
  }

  setHover(row: number): void {
    if (row === this.hover) return;
    this.hover = row;
    this.tell('hover');
  }

  setCursor(time: number): void {
    this.cursor = time;
    this.tell('hover');
  }

  select(row: number): void {
    this.selection = row >= 0 && row < this.store.rows ? row : -1;
    this.relatives = this.selection < 0 ? null : relativesOf(this.store, this.selection);
    this.emphasise();
    this.tell('selection');
  }

  /** Brings an event into view, both ways, without zooming where it can be seen already. */
  reveal(row: number): void {
    const { start, end } = this.store;
    const length = end[row] - start[row];
    const span = this.to - this.from;
    if (length > span || (length > 0 && length < span / 2000)) {
      const wanted = Math.max(length * 6, kNarrowest);
      this.setWindow(start[row] + length / 2 - wanted / 2, start[row] + length / 2 + wanted / 2);
    } else if (start[row] < this.from + span * 0.05 || end[row] > this.to - span * 0.05) {
      const middle = start[row] + length / 2;
      this.setWindow(middle - span / 2, middle + span / 2);
    }
    this.scrollInto(row);
  }

  private scrollInto(row: number): void {
    const track = this.layout.tracks.of[row];
    const top = track < 0 ? NaN : this.geometry.trackTop[track];
    if (top < this.scroll + 20 || top > this.scroll + this.viewHeight - 40) this.scrollTo(top - this.viewHeight / 2);
  }

  goTo(row: number): void {
    if (row < 0) return;
    this.select(row);
    this.reveal(row);
  }

  setQuery(query: string): void {
    this.search(query);
    this.match = -1;
    this.emphasise();
    this.tell('search');
  }

  private search(query: string): void {
    this.query = query;
    const parsed = parseQuery(this.store, query);
    this.queryFault = typeof parsed === 'string' ? parsed : '';
    this.matches = typeof parsed === 'string' ? null : search(this.store, parsed);
  }

  /** The list of the worst collectives, instead of the pinned event. */
  showWorst(open: boolean): void {
    this.worst = open;
    this.select(-1);
  }

  /** The worst collectives of those that are shown: without those of start-up, or these alone. */
  worstShown(most: number, atStartup = false): number[] {
    return this.lateness.worst(most, (row) => this.layout.tracks.of[row] >= 0, atStartup);
  }

  /** The next (1) or previous (-1) match that is shown, seen from the selection or the window. */
  step(direction: 1 | -1): void {
    const matches = this.matches;
    if (matches === null || matches.length === 0) return;
    if (this.match < 0) {
      const from = this.selection >= 0 ? this.store.start[this.selection] : this.from;
      const found = matches.findIndex((row) => this.store.start[row] >= from);
      this.match = (found < 0 ? 0 : found) - (direction === 1 ? 1 : 0);
    }
    for (let tried = 0; tried < matches.length; tried++) {
      this.match = (this.match + direction + matches.length) % matches.length;
      if (this.layout.tracks.of[matches[this.match]] >= 0) break;
    }
    this.goTo(matches[this.match]);
    this.tell('search');
  }

  /** The neighbour in the same track. */
  neighbour(direction: 1 | -1): void {
    const { tracks } = this.layout;
    if (this.selection < 0 || tracks.of[this.selection] < 0) return this.goTo(this.firstInView());
    const track = tracks.of[this.selection];
    const at = tracks.place[this.selection] + direction;
    if (at >= tracks.offsets[track] && at < tracks.offsets[track + 1]) this.goTo(tracks.rows[at]);
  }

  private firstInView(): number {
    const { start, rows } = this.store;
    for (let row = 0; row < rows; row++) {
      if (start[row] >= this.from && this.layout.tracks.of[row] >= 0) return row;
    }
    return -1;
  }

  toParent(): void {
    if (this.selection >= 0) this.goTo(this.store.parent[this.selection]);
  }

  toChild(): void {
    if (this.selection < 0) return;
    const children = listOf(this.store.children, this.selection);
    if (children.length > 0) this.goTo(children[0]);
  }

  /** The same collective in the next rank. */
  toPeer(): void {
    const peers = this.relatives?.peers ?? [];
    if (peers.length > 0) this.goTo(peers[(peers.indexOf(this.selection) + 1) % peers.length]);
  }

  toggleMark(time: number): void {
    const near = (this.to - this.from) / 200;
    const found = this.marks.findIndex((mark) => Math.abs(mark - time) < near);
    if (found >= 0) this.marks.splice(found, 1);
    else this.marks = [...this.marks, Math.round(time)].sort((a, b) => a - b).slice(0, 100);
    this.tell('marks');
  }

  clearMarks(): void {
    this.marks = [];
    this.tell('marks');
  }

  toggleLines(which: 'showParents' | 'showCollectives'): void {
    this[which] = !this[which];
    this.tell('lines');
  }

  /** Matches of the search and relatives of the selection stand out; without either, everything does. */
  private emphasise(): void {
    const { matches, relatives, selection } = this;
    if (matches === null && relatives === null) {
      this.emphasis = null;
      return;
    }
    const { place: placeOf, rows } = this.layout.tracks;
    const before = new Int32Array(rows.length + 1);
    const mark = (row: number): void => {
      if (placeOf[row] >= 0) before[placeOf[row] + 1] = 1;
    };
    if (matches !== null) matches.forEach(mark);
    if (relatives !== null) {
      [selection, ...relatives.ancestors, ...relatives.descendants, ...relatives.peers].forEach(mark);
    }
    for (let at = 0; at < rows.length; at++) before[at + 1] += before[at];
    this.emphasis = before;
  }

  place(): Place {
    const now: Place = { from: round(this.from), to: round(this.to) };
    const id = this.selection < 0 ? null : (this.store.column('id')?.exact(this.selection) ?? null);
    if (id !== null) now.event = { process: this.store.process[this.selection], id };
    if (this.worst) now.worst = true;
    if (this.query !== '') now.query = this.query;
    if (this.marks.length > 0) now.marks = this.marks;
    if (this.hidden.size > 0) now.hidden = [...this.hidden].sort((a, b) => a - b);
    if (this.ranksText !== '') now.ranks = this.ranksText;
    if (this.communicators !== null) now.communicators = [...this.communicators].sort((a, b) => a - b);
    return now;
  }

  /** `faults`: what of the address could not be read. */
  apply(wanted: Place, faults: readonly string[] = []): void {
    const found = [...faults];
    const before = this.filterText();
    this.hidden.clear();
    for (const type of wanted.hidden ?? []) this.hidden.add(type);
    this.communicators = this.communicatorsOf(wanted.communicators, found);
    const ranks = parseRanks(wanted.ranks ?? '');
    if (typeof ranks === 'string') found.push(`ranks=${wanted.ranks}: ${ranks}`);
    this.ranks = typeof ranks === 'string' ? null : ranks;
    this.ranksText = this.ranks === null ? '' : (wanted.ranks ?? '');
    this.marks = wanted.marks ?? [];
    this.search(wanted.query ?? '');
    this.worst = wanted.worst ?? false;
    if (this.filterText() === before) this.emphasise();
    else this.relay();
    if (wanted.event !== undefined) {
      const row = this.find(wanted.event.process, wanted.event.id);
      if (row < 0) found.push(`e=${wanted.event.process}:${wanted.event.id.toString(16)}: this recording has no such event`);
      if (wanted.from === undefined) this.goTo(row);
      else this.select(row);
    } else if (wanted.operation !== undefined && !this.goToOperation(wanted.operation)) {
      const { communicator, name, sequence } = wanted.operation;
      found.push(`op=${communicator},${name},${sequence}: this recording has no such operation`);
    }
    if (wanted.from !== undefined && wanted.to !== undefined) this.setWindow(wanted.from, wanted.to);
    if (this.selection >= 0) this.scrollInto(this.selection);
    this.tell('search');
    this.placeFaults = found;
  }

  /** Those that there are; null, which is all of them, where the address names none or none that there is. */
  private communicatorsOf(wanted: readonly number[] | undefined, faults: string[]): Set<number> | null {
    if (wanted === undefined) return null;
    const count = this.store.communicators.length;
    const there = wanted.filter((number) => Number.isInteger(number) && number >= 0 && number < count);
    if (there.length < wanted.length) {
      faults.push(`comm=${wanted.join(',').slice(0, 60)}: this recording has ${count} communicator${count === 1 ? '' : 's'}, counted from 0`);
    }
    return there.length === 0 ? null : new Set(there);
  }

  /** The same for the same filters: laying out a million events again takes a while. */
  private filterText(): string {
    const { hidden, communicators, ranks } = this.place();
    return JSON.stringify([hidden, communicators, ranks]);
  }

  /** Pins the last rank of a collective, and shows all of them; false where it is not there. */
  private goToOperation({ communicator, name, sequence }: NonNullable<Place['operation']>): boolean {
    const { store } = this;
    const same = (a: string, b: string): boolean => a.toLowerCase() === b.toLowerCase();
    for (let collective = 0; collective < store.collectives.count; collective++) {
      const row = listOf(store.collectives.rows, collective)[0];
      const context = store.bundle.contexts[store.context[row]];
      if (store.sequence[row] !== sequence || !same(store.text(store.function[row]), name)) continue;
      if (context === undefined || !same(context.communicator, communicator)) continue;
      this.select(this.lateness.lastRow[collective] >= 0 ? this.lateness.lastRow[collective] : row);
      this.fit();
      return true;
    }
    return false;
  }

  private find(process: number, id: bigint): number {
    const column = this.store.column('id');
    if (column === undefined) return -1;
    const near = Number(id);
    for (let row = 0; row < this.store.rows; row++) {
      if (column.get(row) === near && this.store.process[row] === process && column.exact(row) === id) return row;
    }
    return -1;
  }

  /** For people who cannot see the bars. */
  describe(row: number): string {
    const some = fieldsOf(this.store, row).slice(0, 8).map((field) => `${field.name} ${field.value}`);
    return `${titleOf(this.store, row)}: ${some.join(', ')}`;
  }
}

function round(time: number): number {
  return Math.round(time * 10) / 10;
}
