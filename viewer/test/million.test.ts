// A million events: how long they take to open, and how many frames a second panning and zooming reach, on the processor
// alone. A busy machine runs this too, and there a page waits for its turn: so what is held below 3 s is the processor time of
// the page's process, which does not count that; how long it takes in all is printed. Where nothing else runs the two are
// nearly the same: one thread does most of it.

import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Browser } from 'puppeteer-core';
import { kOut, launch, openPage, screenshot } from './browser';

const kMostSeconds = 3;
const kMostOpenings = 3;
// On a busy machine a page may wait for its turn that long; the bounds above are what is tested.
const kPatienceMs = 120_000;
const kFrameMs = 33;

let browser: Browser;
beforeAll(async () => void (browser = await launch(kPatienceMs)));
afterAll(() => browser.close());

const median = (values: number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** Opens the recording in a browser of its own; how many seconds of the processor the page's process had. */
async function opening(): Promise<number> {
  const alone = await launch(kPatienceMs);
  try {
    const { page, faults } = await openPage(alone, `${kOut}recordings/million.html`, { timeout: kPatienceMs });
    expect(faults).toEqual([]);
    const wall = await page.evaluate(() => window.strettoViewer!.loaded['total'] / 1000);
    const session = await alone.target().createCDPSession();
    const { processInfo } = await session.send('SystemInfo.getProcessInfo');
    const busy = Math.max(...processInfo.filter(({ type }) => type === 'renderer').map(({ cpuTime }) => cpuTime));
    console.log(`opened in ${wall.toFixed(2)} s, with ${busy.toFixed(2)} s of the processor`);
    return busy;
  } finally {
    await alone.close();
  }
}

it('opens a million events with less than 3 s of the processor', { timeout: 3 * kPatienceMs }, async () => {
  let least = Infinity;
  for (let at = 0; at < kMostOpenings && least >= kMostSeconds; at++) least = Math.min(least, await opening());
  expect(least).toBeLessThan(kMostSeconds);
});

it('opens, pans and zooms a million events', { timeout: 2 * kPatienceMs }, async () => {
  const { page, faults } = await openPage(browser, `${kOut}recordings/million.html`, { timeout: kPatienceMs });
  const loaded = await page.evaluate(() => ({ ...window.strettoViewer!.loaded, events: window.strettoViewer!.events }) as Record<string, number>);
  const frames = await page.evaluate(async () => {
    const viewer = window.strettoViewer!;
    const { from, to } = viewer.view();
    const found: Record<string, { draw: number[]; gap: number[] }> = {};
    for (const [name, share] of [['all', 1], ['a tenth', 0.1], ['a thousandth', 0.001]] as const) {
      const span = (to - from) * share;
      const [draw, gap]: [number[], number[]] = [[], []];
      let last = 0;
      for (let frame = 0; frame < 45; frame++) {
        const now = await new Promise<number>((next) => requestAnimationFrame(next));
        if (last > 0) gap.push(now - last);
        last = now;
        const at = from + (to - from) * (1 - share) * 0.5 + (span * frame) / 90;
        viewer.setView(at, at + span);
        draw.push(viewer.draw());
      }
      found[name] = { draw, gap };
    }
    return found;
  });
  const search = await page.evaluate(async () => {
    const began = performance.now();
    const input = document.getElementById('query') as HTMLInputElement;
    input.value = 'allreduce rank:3 duration>1us';
    input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' }));
    return { ms: performance.now() - began, matches: window.strettoViewer!.matches() };
  });
  await screenshot(page, 'million');
  const rounded = Object.entries(loaded).map(([stage, ms]) => `${stage} ${Math.round(ms)}`);
  console.log(`opened (ms): ${rounded.join(', ')}`);
  for (const [name, { draw, gap }] of Object.entries(frames)) {
    console.log(`${name} in view: ${median(draw).toFixed(1)} ms a frame drawn, one each ${median(gap).toFixed(1)} ms`);
  }
  console.log(`search: ${Math.round(search.ms)} ms, ${search.matches} matches`);
  expect(loaded['events']).toBe(1_000_000);
  for (const { draw } of Object.values(frames)) expect(median(draw)).toBeLessThan(kFrameMs);
  expect(search.matches).toBeGreaterThan(1000);
  expect(faults).toEqual([]);
});
