// Bars into an image buffer, one 32-bit store per pixel column and track, then copied down the bar's height. What is
// narrower than a pixel is binned: the column takes the type of an event in the middle of the bin, and its strength says how
// much of the column was busy. The cost is bounded by the pixels, not by the events.

import type { Tracks } from './layout';

export interface Band {
  readonly track: number;
  /** Top of the bars in the image, in pixels, and their height; both whole, both inside of the image. */
  readonly top: number;
  readonly height: number;
}

export interface Window {
  /** Time at the left edge, and pixels per nanosecond. */
  readonly from: number;
  readonly scale: number;
}

/** Colours as the bytes of an image buffer lie: 0xAABBGGRR. */
export interface Colours {
  /** By type: the colour of a bar. */
  readonly bars: Uint32Array;
  /** The same for bars that stand back. */
  readonly faded: Uint32Array;
  readonly background: number;
}

/** Which places stand out: `before[p]` is how many do before place p. Null: all. */
export type Emphasis = Int32Array | null;

export function pack(red: number, green: number, blue: number): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

export function mix(under: number, over: number, share: number): number {
  const channel = (shift: number): number => {
    const a = (under >>> shift) & 255;
    return Math.round(a + (((over >>> shift) & 255) - a) * share);
  };
  return pack(channel(0), channel(8), channel(16));
}

/** The first place in [low, high) whose value is above `limit`; values ascend. */
export function firstAbove(values: Float64Array, low: number, high: number, limit: number): number {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The same where the answer is most likely close to `low`: steps that double, then bisection. */
function gallop(values: Float64Array, low: number, high: number, limit: number): number {
  let step = 1;
  let at = low;
  while (at + step < high && values[at + step] <= limit) {
    at += step;
    step *= 2;
  }
  return firstAbove(values, at, Math.min(at + step + 1, high), limit);
}

// A bar at least this wide has an edge of its own, so that neighbours of one type stay two.
const kEdgeFrom = 4;
const kLeastStrength = 0.45;

/** One line of pixels for one track. `line` holds the background already. */
function drawLine(line: Uint32Array, tracks: Tracks, track: number, window: Window, look: Colours, emphasis: Emphasis): void {
  const { start, end, type, busy, offsets } = tracks;
  const width = line.length;
  const { from, scale } = window;
  const perPixel = 1 / scale;
  const last = offsets[track + 1];
  let at = firstAbove(end, offsets[track], last, from);
  while (at < last) {
    const left = (start[at] - from) * scale;
    if (left >= width) return;
    const right = (end[at] - from) * scale;
    const x = left > 0 ? Math.floor(left) : 0;
    if (right - left >= 1) {
      const colour = (emphasis === null || emphasis[at + 1] > emphasis[at] ? look.bars : look.faded)[type[at]];
      const stop = Math.min(width, Math.max(x + 1, Math.floor(right)));
      line.fill(colour, x, stop);
      if (right - left >= kEdgeFrom && stop < width) line[stop - 1] = mix(look.background, colour, 0.45);
      at++;
      continue;
    }
    // All that begin in this pixel column.
    const columnEnd = from + (x + 1) * perPixel;
    let next = gallop(start, at, last, columnEnd - 1e-9 * perPixel);
    if (next <= at) next = at + 1;
    // The last of them may reach beyond: it is a bar of its own.
    if (next - at > 1 && end[next - 1] - start[next - 1] >= perPixel) next--;
    const share = Math.min(1, (busy[next] - busy[at]) * scale);
    const standsOut = emphasis === null || emphasis[next] > emphasis[at];
    const colour = (standsOut ? look.bars : look.faded)[type[(at + next - 1) >>> 1]];
    const strength = standsOut && emphasis !== null ? 1 : Math.max(kLeastStrength, share);
    line[x] = strength >= 1 ? colour : mix(look.background, colour, strength);
    at = next;
  }
}

/** All bands into `image`, which is `width` pixels wide and holds the background already. */
export function drawBands(
  image: Uint32Array,
  width: number,
  bands: readonly Band[],
  tracks: Tracks,
  window: Window,
  look: Colours,
  emphasis: Emphasis,
): void {
  for (const band of bands) {
    const begin = band.top * width;
    const line = image.subarray(begin, begin + width);
    drawLine(line, tracks, band.track, window, look, emphasis);
    for (let row = 1; row < band.height; row++) image.copyWithin(begin + row * width, begin, begin + width);
  }
}

/** The place under a moment in a track, or the nearest within `reach`; -1 none. */
export function placeAt(tracks: Tracks, track: number, time: number, reach: number): number {
  const first = tracks.offsets[track];
  const last = tracks.offsets[track + 1];
  const next = firstAbove(tracks.start, first, last, time);
  let best = -1;
  let distance = reach;
  for (const at of [next - 1, next]) {
    if (at < first || at >= last) continue;
    const away = Math.max(tracks.start[at] - time, time - tracks.end[at], 0);
    if (away === 0 && at === next - 1) return at;
    if (away <= distance) {
      best = at;
      distance = away;
    }
  }
  return best;
}
