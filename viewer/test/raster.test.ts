import { describe, expect, it } from 'vitest';
import { openPayload } from '../src/bundle';
import { kShowAll, layOut, type Tracks } from '../src/layout';
import { drawBands, firstAbove, mix, pack, placeAt, type Colours } from '../src/raster';
import { Store } from '../src/store';
import { payloadOf, randoms, type Event } from './make_bundle';

const kBackground = pack(255, 255, 255);
const kLook: Colours = {
  bars: Uint32Array.from({ length: 256 }, (_, type) => pack(type, 10, 20)),
  faded: Uint32Array.from({ length: 256 }, (_, type) => pack(type, 200, 220)),
  background: kBackground,
};

function tracksOf(events: Event[]): Tracks {
  const placed = events.map((event) => ({ process: 0, thread: 0, context: 0, ...event }));
  return layOut(new Store(openPayload(payloadOf({ events: placed }))), kShowAll).tracks;
}

function line(tracks: Tracks, width: number, from: number, to: number, emphasis: Int32Array | null = null): Uint32Array {
  const image = new Uint32Array(width).fill(kBackground);
  drawBands(image, width, [{ track: 0, top: 0, height: 1 }], tracks, { from, scale: width / (to - from) }, kLook, emphasis);
  return image;
}

describe('the raster', () => {
  it('draws a bar where it is, and no further', () => {
    const pixels = line(tracksOf([{ type: 8, start: 10, stop: 30 }]), 100, 0, 100);
    expect(Array.from(pixels.slice(8, 12), (one) => one === kBackground)).toEqual([true, true, false, false]);
    expect(pixels[28]).toBe(kLook.bars[8]);
    expect(pixels[29]).not.toBe(kBackground);
    expect(pixels[30]).toBe(kBackground);
  });

  it('cuts bars at the edges of the window', () => {
    const pixels = line(tracksOf([{ type: 8, start: 0, stop: 1000 }]), 50, 400, 500);
    expect(pixels.every((one) => one === kLook.bars[8])).toBe(true);
  });

  it('shows what is narrower than a pixel, stronger where more of the pixel is busy', () => {
    const quiet = line(tracksOf([{ type: 8, start: 500, stop: 501 }]), 10, 0, 1000);
    const busy = line(tracksOf(Array.from({ length: 45 }, (_, k) => ({ type: 8, start: 500 + 2 * k, stop: 502 + 2 * k }))), 10, 0, 1000);
    expect(quiet[5]).not.toBe(kBackground);
    expect(quiet.filter((one) => one !== kBackground).length).toBe(1);
    expect(busy[5] & 0xff00).toBeLessThan(quiet[5] & 0xff00);
  });

  it('shows an event of no length', () => {
    expect(line(tracksOf([{ type: 8, start: 42, stop: 42 }]), 100, 0, 100)[42]).not.toBe(kBackground);
  });

  it('lets a match stand out of a bin', () => {
    const events = Array.from({ length: 1000 }, (_, k) => ({ type: 8, start: 10 * k, stop: 10 * k + 1 }));
    const emphasis = new Int32Array(1001).fill(1, 501);
    const pixels = line(tracksOf(events), 10, 0, 10000, emphasis);
    expect(pixels[5]).toBe(kLook.bars[8]);
    expect([0, 1, 2, 3, 4, 6, 7, 8, 9].every((x) => (pixels[x] & 0xff00) >>> 8 > 190)).toBe(true);
  });

  it('leaves no gap that a slow drawing of every event would fill: at random, at 40 zooms', () => {
    const random = randoms(11);
    let at = 0;
    const events = Array.from({ length: 3000 }, () => {
      const start = (at += Math.floor(random() * 40));
      at += Math.floor(random() ** 3 * 200);
      return { type: 8, start, stop: at };
    });
    const tracks = tracksOf(events);
    for (let round = 0; round < 40; round++) {
      const from = random() * at * 0.8;
      const to = from + at * 10 ** (-3 * random());
      const width = 300;
      const pixels = line(tracks, width, from, to);
      const scale = width / (to - from);
      const slow = new Uint8Array(width);
      for (const { start, stop } of events) {
        if (stop <= from || start >= to) continue;
        const left = Math.max(Math.floor((start - from) * scale), 0);
        if (left < width) slow[left] = 1;
        for (let x = left + 1; x + 1 <= (stop - from) * scale && x < width; x++) slow[x] = 1;
      }
      const missing = slow.findIndex((drawn, x) => drawn === 1 && pixels[x] === kBackground);
      expect(missing).toBe(-1);
    }
  });

  it('copies a line down the height of its bar', () => {
    const image = new Uint32Array(100).fill(kBackground);
    const tracks = tracksOf([{ type: 8, start: 0, stop: 10 }]);
    drawBands(image, 10, [{ track: 0, top: 2, height: 3 }], tracks, { from: 0, scale: 1 }, kLook, null);
    const rows = Array.from({ length: 10 }, (_, row) => image[row * 10] !== kBackground);
    expect(rows).toEqual([false, false, true, true, true, false, false, false, false, false]);
  });
});

describe('finding', () => {
  it('bisects', () => {
    const values = Float64Array.from([1, 3, 3, 7]);
    expect([0, 1, 3, 6, 7].map((limit) => firstAbove(values, 0, 4, limit))).toEqual([0, 1, 3, 3, 4]);
  });

  it('finds what is under the pointer, or close to it', () => {
    const tracks = tracksOf([{ type: 8, start: 10, stop: 20 }, { type: 8, start: 30, stop: 30 }]);
    expect([9, 10, 15, 20, 25, 28, 32, 90].map((time) => placeAt(tracks, 0, time, 3))).toEqual([0, 0, 0, 0, -1, 1, 1, -1]);
  });

  it('mixes colours', () => {
    expect(mix(pack(0, 0, 0), pack(200, 100, 50), 0.5)).toBe(pack(100, 50, 25));
  });
});
