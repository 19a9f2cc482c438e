// The lanes: bars in an image buffer (raster.ts), names on wide bars, marks of states. Redrawn as a whole when the window
// moves; what changes under the pointer is on a canvas of its own above (overlay.ts).

import { context2d, fitCanvas } from './dom';
import { titleOf } from './fields';
import { duration, ticks } from './format';
import { kBarHeight, kTrackHeight, laneAt, lanesBetween, trackAt, tracksBelow } from './geometry';
import { kCertain, kStartup, type Lane as LatenessLane } from './lateness';
import { isFoldable } from './layout';
import { drawBands, firstAbove, placeAt, type Band } from './raster';
import type { Session } from './session';
import { listOf } from './store';
import type { Theme } from './theme';

export interface Bar {
  readonly row: number;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

const kNameFrom = 34;
const kMostNames = 1200;
const kMarksFrom = 6;
const kMostMarks = 3000;
const kCharacter = 6.1;
const kMostWaits = 4000;
// Of so few bars of lateness none is cut off.
const kFew = 20;
// Bars of lateness of which it is not certain who came last.
const kPale = 0.4;
const kLeastWait = 3;
const kSolidEdge = 4;
/** A tick for each so many pixels, here and on the ruler. */
export const kTickEvery = 110;

export class Timeline {
  width = 1;
  height = 1;
  private readonly context: CanvasRenderingContext2D;
  private image: ImageData | null = null;
  private pixels = new Uint32Array(0);
  /** Milliseconds that the last frames took. */
  readonly frames: number[] = [];

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly session: Session,
  ) {
    this.context = context2d(canvas, true);
  }

  resize(width: number, height: number): void {
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
    if (fitCanvas(this.canvas, width, height) || this.image === null) {
      this.image = this.context.createImageData(this.canvas.width, this.canvas.height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
  }

  xOf(time: number): number {
    return ((time - this.session.from) / (this.session.to - this.session.from)) * this.width;
  }

  timeAt(x: number): number {
    return this.session.from + (x / this.width) * (this.session.to - this.session.from);
  }

  /** The event under a point; -1 none. */
  rowAt(x: number, y: number): number {
    const lateness = this.session.layout.lanes[laneAt(this.session.geometry, y + this.session.scroll)]?.lateness;
    if (lateness !== undefined) return this.latestAt(lateness, x);
    const track = trackAt(this.session.layout, this.session.geometry, y + this.session.scroll);
    if (track < 0) return -1;
    const reach = (3 / this.width) * (this.session.to - this.session.from);
    const at = placeAt(this.session.layout.tracks, track, this.timeAt(x), reach);
    return at < 0 ? -1 : this.session.layout.tracks.rows[at];
  }

  /** On a lane of lateness: who came last to the worst collective near this point. */
  private latestAt(lane: LatenessLane, x: number): number {
    const [from, to] = [this.timeAt(x - 3), this.timeAt(x + 3)];
    const first = firstAbove(lane.at, 0, lane.at.length, from);
    let worst = -1;
    for (let at = first; at < lane.at.length && lane.at[at] <= to; at++) if (worst < 0 || lane.late[at] > lane.late[worst]) worst = at;
    return worst < 0 ? -1 : this.session.lateness.lastRow[lane.collectives[worst]];
  }

  /** Where an event's bar is, also outside of the view; null where it is filtered or folded away. */
  barOf(row: number): Bar | null {
    const { layout, geometry, store, scroll } = this.session;
    const track = layout.tracks.of[row];
    if (track < 0 || Number.isNaN(geometry.trackTop[track])) return null;
    const x = this.xOf(store.start[row]);
    return { row, x, y: geometry.trackTop[track] - scroll, width: Math.max(this.xOf(store.end[row]) - x, 1), height: kBarHeight };
  }

  /** Tracks in view, with the tops of their bars. */
  visibleTracks(): { track: number; top: number }[] {
    const { layout, geometry, scroll } = this.session;
    const [first, last] = lanesBetween(geometry, scroll, scroll + this.height);
    const found: { track: number; top: number }[] = [];
    for (let index = first; index < last; index++) {
      const lane = layout.lanes[geometry.visible[index]];
      for (let track = lane.firstTrack; track < lane.firstTrack + lane.tracks; track++) {
        const top = geometry.trackTop[track] - scroll;
        if (top + kTrackHeight > 0 && top < this.height) found.push({ track, top });
      }
    }
    return found;
  }

  /** Places of a track that are in view. */
  placesInView(track: number): [number, number] {
    const { tracks } = this.session.layout;
    const [low, high] = [tracks.offsets[track], tracks.offsets[track + 1]];
    const first = firstAbove(tracks.end, low, high, this.session.from);
    return [first, Math.max(first, firstAbove(tracks.start, first, high, this.session.to))];
  }

  /** Bars in view, at most `most`. */
  bars(most: number): Bar[] {
    const found: Bar[] = [];
    for (const { track } of this.visibleTracks()) {
      const [first, last] = this.placesInView(track);
      for (let at = first; at < last && found.length < most; at++) {
        const bar = this.barOf(this.session.layout.tracks.rows[at]);
        if (bar !== null) found.push(bar);
      }
    }
    return found;
  }

  draw(theme: Theme): void {
    const began = performance.now();
    const image = this.image;
    if (image === null) return;
    const ratio = image.width / this.width;
    this.drawGround(theme, ratio);
    const visible = this.visibleTracks();
    const span = this.session.to - this.session.from;
    const window = { from: this.session.from, scale: image.width / span };
    const all = visible.map(({ track, top }) => this.band(track, top, top + kBarHeight, ratio));
    const bands = [...all, ...this.foldedBands(ratio)].filter((band) => band.height > 0);
    drawBands(this.pixels, image.width, bands, this.session.layout.tracks, window, theme.look, this.session.emphasis);
    this.context.putImageData(image, 0, 0);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawLives(theme);
    this.drawLateness(theme);
    this.drawDetails(theme, visible);
    this.frames.push(performance.now() - began);
    if (this.frames.length > 600) this.frames.splice(0, 300);
  }

  private band(track: number, top: number, bottom: number, ratio: number): Band {
    const from = Math.max(0, Math.round(top * ratio));
    const to = Math.min(this.canvas.height, Math.round(bottom * ratio));
    return { track, top: from, height: to - from };
  }

  /** A header that is folded shows the tracks below it as thin stripes, as many as find room. */
  private foldedBands(ratio: number): Band[] {
    const { layout, geometry, scroll, folded } = this.session;
    const [first, last] = lanesBetween(geometry, scroll, scroll + this.height);
    const found: Band[] = [];
    for (const number of geometry.visible.slice(first, last)) {
      if (!folded.has(layout.lanes[number].key)) continue;
      const tracks = tracksBelow(layout, number);
      const room = geometry.height[number] - 6;
      const each = Math.min(5, Math.max(1, Math.floor(room / Math.max(tracks.length, 1))));
      tracks.slice(0, room / each).forEach((track, index) => {
        const top = geometry.top[number] - scroll + 3 + index * each;
        found.push(this.band(track, top, top + each - (each > 2 ? 1 : 0), ratio));
      });
    }
    return found;
  }

  /** Background, stripes of the headers, lines of the ticks. */
  private drawGround(theme: Theme, ratio: number): void {
    const { layout, geometry, scroll, from, to } = this.session;
    const wide = this.canvas.width;
    this.pixels.fill(theme.look.background);
    for (const tick of ticks(from, to, this.width / kTickEvery)) {
      const x = Math.round(this.xOf(tick.time) * ratio);
      if (x < 0 || x >= wide) continue;
      for (let at = x; at < this.pixels.length; at += wide) this.pixels[at] = theme.grid;
    }
    const [first, last] = lanesBetween(geometry, scroll, scroll + this.height);
    for (let index = first; index < last; index++) {
      const lane = geometry.visible[index];
      const top = Math.round((geometry.top[lane] - scroll) * ratio);
      const bottom = Math.round((geometry.top[lane] + geometry.height[lane] - scroll) * ratio);
      const isHeader = isFoldable(layout.lanes[lane]);
      const colour = isHeader ? theme.header : theme.grid;
      const start = isHeader ? top : bottom - 1;
      this.pixels.fill(colour, Math.max(0, start) * wide, Math.max(0, Math.min(bottom, this.canvas.height)) * wide);
    }
  }

  /** For each pixel column the worst collective whose last rank arrived there: how long the first one had waited. */
  private drawLateness(theme: Theme): void {
    const { layout, geometry, scroll } = this.session;
    const [first, last] = lanesBetween(geometry, scroll, scroll + this.height);
    for (const number of geometry.visible.slice(first, last)) {
      const lane = layout.lanes[number].lateness;
      if (lane !== undefined) this.drawLatenessOf(theme, lane, geometry.top[number] - scroll, geometry.height[number]);
    }
  }

  private drawLatenessOf(theme: Theme, lane: LatenessLane, top: number, height: number): void {
    const { from, to } = this.session;
    const { doubts } = this.session.lateness;
    const low = firstAbove(lane.at, 0, lane.at.length, from);
    // Of the collectives of a column the worst; of start-up only where there is no other.
    const columns = new Float64Array(Math.ceil(this.width) + 1);
    const doubtful = new Uint8Array(columns.length);
    let [most, startup] = [0, 0];
    for (let at = low; at < lane.at.length && lane.at[at] <= to; at++) {
      const column = Math.floor(this.xOf(lane.at[at]));
      const doubt = doubts[lane.collectives[at]];
      const late = lane.late[at];
      if (doubt === kStartup) startup = Math.max(startup, late);
      else most = Math.max(most, late);
      const isAlike = (doubt === kStartup) === (doubtful[column] === kStartup);
      if (columns[column] > 0 && (isAlike ? late <= columns[column] : doubt === kStartup)) continue;
      columns[column] = late;
      doubtful[column] = doubt;
    }
    if (most === 0 && startup === 0) return;
    const { context } = this;
    // One that is far worse than all others must not flatten them, and start-up not at all.
    const some = columns.filter((late, column) => late > 0 && doubtful[column] !== kStartup).sort();
    const usual = some.length < kFew ? most : Math.min(most, 1.5 * some[Math.floor((some.length - 1) * 0.98)]);
    const whole = usual > 0 ? usual : startup;
    const room = height - 6;
    columns.forEach((late, column) => {
      if (late === 0) return;
      const high = Math.max(1, Math.min(late / whole, 1) * room);
      context.fillStyle = doubtful[column] === kStartup ? theme.muted : theme.collectiveLine;
      context.globalAlpha = doubtful[column] === kCertain || doubtful[column] === kStartup ? 1 : kPale;
      context.fillRect(column - 1, top + height - 2 - high, 2, high);
    });
    context.globalAlpha = 1;
    context.font = '10px ui-sans-serif, system-ui, "DejaVu Sans", sans-serif';
    context.textBaseline = 'top';
    const label = [
      usual > 0 && usual < most ? `full height ${duration(usual)}, one ${duration(most)}` : most > 0 ? `up to ${duration(most)}` : '',
      startup > 0 ? `start-up ${duration(startup)}` : '',
    ].filter((part) => part !== '').join(', ');
    context.fillStyle = theme.halo;
    context.fillRect(2, top + 2, context.measureText(label).width + 6, 13);
    context.fillStyle = theme.muted;
    context.fillText(label, 5, top + 3);
  }

  /** The part of a bar in which its rank waits for others is hollow: only its lower edge is left. */
  private drawWaits(theme: Theme, rows: readonly (readonly [number, number])[]): void {
    const { store, lateness } = this.session;
    const { context } = this;
    if (rows.length === 0) return;
    context.fillStyle = theme.hollow;
    context.beginPath();
    for (const [row, top] of rows) {
      const left = Math.max(this.xOf(store.start[row]) + 1, -1);
      const right = Math.min(this.xOf(lateness.waitEnd(row)), this.width + 1);
      if (right - left >= kLeastWait) context.rect(left, top + 1, right - left, kBarHeight - kSolidEdge);
    }
    context.fill();
  }

  private drawDetails(theme: Theme, visible: { track: number; top: number }[]): void {
    const { session } = this;
    this.drawWaits(theme, this.waitsInView(visible));
    this.context.font = '11px ui-sans-serif, system-ui, "DejaVu Sans", sans-serif';
    this.context.textBaseline = 'middle';
    const namesFrom = (kNameFrom / this.width) * (session.to - session.from);
    let names = 0;
    let marks = 0;
    for (const { track, top } of visible) {
      const [first, last] = this.placesInView(track);
      // More events than pixels: hardly any is wide, and looking for those costs more than they say.
      if (last - first > this.width * 2) continue;
      const { tracks } = session.layout;
      for (let at = first; at < last; at++) {
        const row = tracks.rows[at];
        const faded = session.emphasis !== null && session.emphasis[at + 1] === session.emphasis[at];
        const length = tracks.end[at] - tracks.start[at];
        if (length >= namesFrom && names < kMostNames) names += this.drawName(theme, row, top, faded);
        if (marks < kMostMarks && length * (kNameFrom / kMarksFrom) >= namesFrom) marks += this.drawStates(theme, row, top, faded);
        if (session.store.open[row] === 1) this.drawOpenEnd(theme, row, top);
      }
    }
  }

  private waitsInView(visible: { track: number; top: number }[]): [number, number][] {
    const { lateness, layout } = this.session;
    const least = (kLeastWait / this.width) * (this.session.to - this.session.from);
    const found: [number, number][] = [];
    for (const { track, top } of visible) {
      const [first, last] = this.placesInView(track);
      if (last - first > this.width * 2) continue;
      for (let at = first; at < last && found.length < kMostWaits; at++) {
        if (layout.tracks.end[at] - layout.tracks.start[at] < least) continue;
        const row = layout.tracks.rows[at];
        if (lateness.waitEnd(row) - layout.tracks.start[at] >= least) found.push([row, top]);
      }
    }
    return found;
  }

  /** On a member's header: from `init` to `finalize`, the life of its communicator. */
  private drawLives(theme: Theme): void {
    const { layout, geometry, scroll, store, folded } = this.session;
    const [first, last] = lanesBetween(geometry, scroll, scroll + this.height);
    const { context } = this;
    context.font = '10px ui-sans-serif, system-ui, "DejaVu Sans", sans-serif';
    context.textBaseline = 'middle';
    context.fillStyle = theme.muted;
    for (const number of geometry.visible.slice(first, last)) {
      const member = store.bundle.contexts[layout.lanes[number].context];
      if (member === undefined || Number.isNaN(member.init) || folded.has(layout.lanes[number].key)) continue;
      const [left, right] = [this.xOf(member.init), Number.isNaN(member.finalize) ? this.width + 9 : this.xOf(member.finalize)];
      const y = Math.round(geometry.top[number] - scroll + geometry.height[number] / 2);
      const from = Math.max(left, -9);
      const to = Math.min(right, this.width + 9);
      if (to < from) continue;
      context.fillRect(from, y, to - from, 1);
      for (const [x, name, shift] of [[left, 'init', 4], [right, 'finalize', -43]] as const) {
        if (x < 0 || x > this.width) continue;
        context.fillRect(x, y - 4, 1, 9);
        if (right - left > 90) context.fillText(name, x + shift, y - 5);
      }
    }
  }

  private drawName(theme: Theme, row: number, top: number, faded: boolean): number {
    const { store } = this.session;
    const left = Math.max(this.xOf(store.start[row]), 0);
    const room = Math.min(this.xOf(store.end[row]), this.width) - left - 8;
    const name = titleOf(store, row);
    const characters = Math.floor(room / kCharacter);
    if (characters < 3) return 0;
    const short = name.length <= characters ? name : name.replace(/ #\d+$/, '');
    const shown = short.length <= characters ? short : `${short.slice(0, characters - 1)}…`;
    const hollow = this.session.lateness.waitEnd(row) > this.timeAt(left + 12);
    this.context.fillStyle = faded ? theme.muted : hollow ? theme.text : theme.onBar[store.type[row]];
    this.context.fillText(shown, left + 4, top + kBarHeight / 2 + 0.5);
    return 1;
  }

  /** A small disc on the bar's upper edge for each state. */
  private drawStates(theme: Theme, row: number, top: number, faded: boolean): number {
    const { store } = this.session;
    const states = listOf(store.states, row);
    if (states.length === 0) return 0;
    const { context } = this;
    context.fillStyle = theme.look.background === 0xffffffff ? '#ffffff' : '#14181d';
    context.strokeStyle = faded ? theme.muted : theme.collectiveLine;
    context.lineWidth = 1.3;
    context.beginPath();
    let last = -Infinity;
    let drawn = 0;
    for (const state of states) {
      const x = this.xOf(store.stateTime[state]);
      if (x - last < 2 || x < -4 || x > this.width + 4) continue;
      context.moveTo(x + 2.4, top + 0.5);
      context.arc(x, top + 0.5, 2.4, 0, 7);
      last = x;
      drawn++;
    }
    context.fill();
    context.stroke();
    return drawn;
  }

  /** What never stopped has no right edge but a broken one. */
  private drawOpenEnd(theme: Theme, row: number, top: number): void {
    const right = this.xOf(this.session.store.end[row]);
    if (right < 4 || right > this.width + 8) return;
    const { context } = this;
    context.fillStyle = theme.look.background === 0xffffffff ? '#ffffff' : '#14181d';
    context.beginPath();
    for (let tooth = 0; tooth < 3; tooth++) {
      const y = top + (tooth * kBarHeight) / 3;
      context.moveTo(right + 1, y);
      context.lineTo(right - 4, y + kBarHeight / 6);
      context.lineTo(right + 1, y + kBarHeight / 3);
    }
    context.fill();
  }
}
