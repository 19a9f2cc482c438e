// Headless Chromium opens recordings of which everything is known, and what it shows is held against them.

import { readFileSync } from 'node:fs';
import type { Browser, Page } from 'puppeteer-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { drawn, kOut, launch, openPage, screenshot, type Opened } from './browser';

interface Truth {
  events: number;
  type: number[];
  start: number[];
  stop: number[];
  rank: number[];
  parent: number[];
  states: number[];
  function: string[];
  collectives: number[][];
}

const recording = (name: string): string => `${kOut}recordings/${name}`;
const truthOf = (name: string): Truth => JSON.parse(readFileSync(recording(`${name}.json`), 'utf8'));

let browser: Browser;
let opened: Opened | null = null;

beforeAll(async () => void (browser = await launch()));
afterAll(() => browser.close());
afterEach(async () => {
  const faults = opened?.faults ?? [];
  await opened?.page.close();
  opened = null;
  expect(faults).toEqual([]);
});

async function open(file: string, options: { hash?: string; dark?: boolean } = {}): Promise<Page> {
  opened = await openPage(browser, file, options);
  return opened.page;
}

/** Everything at once: a view high enough for all lanes. */
async function openWhole(name: string): Promise<Page> {
  const page = await open(recording(`${name}.html`));
  await page.setViewport({ width: 1600, height: 2000 });
  await page.waitForFunction(() => window.strettoViewer!.view().height > 1500);
  await page.evaluate(() => window.strettoViewer!.draw());
  return page;
}

describe.each(['one_device', 'devices', 'aggregated'])('the example %s', (name) => {
  it('shows every event as a bar at its time, with its states', async () => {
    const truth = truthOf(name);
    const page = await openWhole(name);
    const { bars, view, width, states } = await page.evaluate(() => {
      const viewer = window.strettoViewer!;
      const bars = viewer.bars();
      const width = document.getElementById('bars')!.clientWidth;
      return { bars, view: viewer.view(), width, states: bars.map((bar) => viewer.states(bar.row).length) };
    });
    expect(bars.map((bar) => bar.row).sort((a, b) => a - b)).toEqual(truth.type.map((_, row) => row));
    const scale = width / (view.to - view.from);
    for (const [index, bar] of bars.entries()) {
      expect(bar.type).toBe(truth.type[bar.row]);
      expect(bar.x).toBeCloseTo((truth.start[bar.row] - view.from) * scale, 3);
      expect(bar.width).toBeCloseTo(Math.max((truth.stop[bar.row] - truth.start[bar.row]) * scale, 1), 3);
      expect(states[index]).toBe(truth.states[bar.row]);
    }
    const overlaps = bars.some((a) => bars.some((b) => a.row < b.row && a.y === b.y && a.x < b.x + b.width - 0.01 && b.x < a.x + a.width - 0.01));
    expect(overlaps).toBe(false);
  });

  it('draws each bar in the colour of its type, pixel by pixel', async () => {
    const page = await openWhole(name);
    const wrong = await page.evaluate(() => {
      const canvas = document.getElementById('bars') as HTMLCanvasElement;
      const context = canvas.getContext('2d')!;
      const style = getComputedStyle(document.documentElement);
      return window.strettoViewer!.bars().filter((bar) => {
        if (bar.width < 6) return false;
        const [r, g, b] = context.getImageData(Math.ceil(bar.x) + 1, Math.round(bar.y) + bar.height - 2, 1, 1).data;
        const colour = `#${[r, g, b].map((value) => value.toString(16).padStart(2, '0')).join('')}`;
        return colour !== style.getPropertyValue(`--type-${bar.type}`).trim();
      }).length;
    });
    expect(wrong).toBe(0);
  });

  it('draws a blue line along every parent and a red one through every collective', async () => {
    const truth = truthOf(name);
    const page = await openWhole(name);
    const lines = await page.evaluate(() => window.strettoViewer!.lines());
    const parents = truth.parent.flatMap((parent, child) => (parent >= 0 ? [`${child}-${parent}`] : []));
    expect(lines.parents.map((one) => `${one.child}-${one.parent}`).sort()).toEqual(parents.sort());
    const sorted = lines.collectives.map((rows) => [...rows].sort((a, b) => a - b)).sort((a, b) => a[0] - b[0]);
    expect(sorted).toEqual([...truth.collectives].sort((a, b) => a[0] - b[0]));
    const reds = await page.evaluate(() => {
      const canvas = document.getElementById('overlay') as HTMLCanvasElement;
      const data = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height).data;
      let found = 0;
      for (let at = 0; at < data.length; at += 4) if (data[at] > 190 && data[at + 1] < 70 && data[at + 3] > 200) found++;
      return found;
    });
    expect(reds).toBeGreaterThan(200);
  });
});

describe('lanes', () => {
  const lanes = async (name: string): Promise<string[]> => {
    const page = await openWhole(name);
    return page.evaluate(() => window.strettoViewer!.lanes().map((lane) => `${lane.level} ${lane.label}: ${lane.events}`));
  };

  it('of one device per thread are a tree of hosts, processes, ranks and threads', async () => {
    const found = await lanes('one_device');
    expect(found.slice(0, 13)).toEqual([
      '0 lateness: 0', '1 dp0: 0',
      '0 node0: 0',
      '1 process 4000: 0', '2 rank 0 of 4: 0', '3 rank 0: 10', '3 NCCL Progress 0: 18', '3 kernel channels: 4',
      '1 process 4001: 0', '2 rank 1 of 4: 0', '3 rank 1: 10', '3 NCCL Progress 1: 18', '3 kernel channels: 4',
    ]);
    expect(found.filter((lane) => lane.startsWith('0'))).toEqual(['0 lateness: 0', '0 node0: 0', '0 node1: 0']);
  });

  it('of several devices in one thread have one GroupApi, with the first rank', async () => {
    expect(await lanes('devices')).toEqual([
      '0 lateness: 0', '1 dp0: 0', '0 node0: 0', '1 process 4000: 0',
      '2 rank 0 of 4: 0', '3 main: 5', '2 rank 1 of 4: 0', '3 main: 4', '2 rank 2 of 4: 0', '3 main: 4', '2 rank 3 of 4: 0', '3 main: 4',
    ]);
  });

  it('of members say how long the communicator lived', async () => {
    const page = await openWhole('one_device');
    const lives = await page.evaluate(() => window.strettoViewer!.lanes().flatMap((lane) => (lane.kind === 'member' ? [lane.life] : [])));
    expect(lives).toEqual([0, 1, 2, 3].map((rank) => [4000 + 300 * rank, 190_000 + 200 * rank]));
    const view = await page.evaluate(() => window.strettoViewer!.view());
    expect(view.from).toBeLessThan(4000);
    expect(view.to).toBeGreaterThan(190_600);
  });

  it('fold and unfold by their headers', async () => {
    const page = await open(recording('one_device.html'));
    const before = await page.evaluate(() => window.strettoViewer!.view().total);
    await page.click('.lane[data-kind="process"]');
    await page.waitForFunction((total) => window.strettoViewer!.view().total < total, {}, before);
    await drawn(page);
    expect(await page.$eval('.lane[data-kind="process"]', (lane) => lane.getAttribute('aria-expanded'))).toBe('false');
    await page.click('.lane[data-kind="process"]');
    await page.waitForFunction((total) => window.strettoViewer!.view().total === total, {}, before);
  });
});

describe('an event', () => {
  const barOf = (page: Page, type: number): Promise<{ row: number; x: number; y: number }> =>
    page.evaluate((wanted) => {
      const box = document.getElementById('overlay')!.getBoundingClientRect();
      const bar = window.strettoViewer!.bars().find((one) => one.type === wanted)!;
      return { row: bar.row, x: box.left + bar.x + bar.width / 2, y: box.top + bar.y + bar.height / 2 };
    }, type);

  it('shows what matters under the pointer, and every field when it is pinned', async () => {
    const truth = truthOf('one_device');
    const page = await open(recording('one_device.html'));
    const bar = await barOf(page, 4);
    await page.mouse.move(bar.x, bar.y);
    await page.waitForSelector('#tooltip:not([hidden])');
    const text = await page.$eval('#tooltip', (box) => box.textContent!);
    for (const wanted of ['ProxyStep', '8.000 µs', 'dp0 0xc0ffee0123456789', '0 of 4', 'ProxyStepSendGPUWait', '+500 ns', '65 536', 'step']) {
      expect(text).toContain(wanted);
    }
    expect(text).not.toContain('NCCL Progress');
    const fields = await page.evaluate((row) => window.strettoViewer!.fields(row), bar.row);
    await page.mouse.click(bar.x, bar.y);
    await page.waitForSelector('#panel:not([hidden])');
    const all = await page.$eval('#panel', (panel) => panel.textContent!);
    expect(all).toContain('NCCL Progress');
    expect(fields.filter((field) => !all.includes(field.value))).toEqual([]);
    expect(await page.$eval('#panel details', (rest) => (rest as HTMLDetailsElement).open), 'noise is folded away').toBe(false);
    expect(fields.length).toBeGreaterThan(11);
    expect(truth.states[bar.row]).toBe(3);
  });

  it('is pinned by a click, with its relatives, and let go by Escape', async () => {
    const truth = truthOf('one_device');
    const page = await open(recording('one_device.html'));
    const bar = await barOf(page, 1);
    await page.mouse.click(bar.x, bar.y);
    await page.waitForSelector('#panel:not([hidden])');
    const links = await page.$$eval('#panel .link .what', (all) => all.map((one) => one.textContent));
    expect(links.filter((link) => link!.startsWith('AllReduce #')).length).toBe(4);
    expect(links).toContain('GroupApi');
    const lines = await page.evaluate(() => window.strettoViewer!.lines());
    const collective = truth.collectives.find((rows) => rows.includes(bar.row))!;
    expect(lines.collectives.map((rows) => [...rows].sort((a, b) => a - b))).toEqual([collective]);
    expect(lines.parents.some((line) => line.parent === bar.row)).toBe(true);
    // What the panel lists can be walked to.
    await page.click('#panel .link:not([aria-current])');
    await page.waitForFunction((row) => window.strettoViewer!.selection() !== row, {}, bar.row);
    await page.keyboard.press('Escape');
    await page.waitForSelector('#panel', { hidden: true });
    expect(await page.evaluate(() => window.strettoViewer!.selection())).toBe(-1);
  });

  it('is linked to: the address opens at it again', async () => {
    const page = await open(recording('one_device.html'));
    const bar = await barOf(page, 1);
    await page.mouse.click(bar.x, bar.y);
    await page.waitForFunction(() => location.hash.includes('e='));
    const selected = await page.evaluate(() => location.hash);
    await page.keyboard.press('f');
    await page.waitForFunction((before) => location.hash !== before, {}, selected);
    const [hash, view] = await page.evaluate(() => [location.hash, window.strettoViewer!.view()] as const);
    await page.close();
    const again = await open(recording('one_device.html'), { hash });
    expect(await again.evaluate(() => window.strettoViewer!.selection())).toBe(bar.row);
    const now = await again.evaluate(() => window.strettoViewer!.view());
    expect(now.from).toBeCloseTo(view.from, 0);
    expect(now.to).toBeCloseTo(view.to, 0);
  });
});

describe('who came late', () => {
  /** The middle of the lane of lateness, as far along as the second collective's last rank. */
  async function lateSpot(page: Page): Promise<{ row: number; x: number; y: number }> {
    return page.evaluate(() => {
      const viewer = window.strettoViewer!;
      const rows = viewer.worst()[0];
      const box = document.getElementById('overlay')!.getBoundingClientRect();
      const { from, to } = viewer.view();
      return { row: rows.row, x: box.left + ((rows.at - from) / (to - from)) * box.width, y: box.top + 20 + 19 };
    });
  }

  it('is in a lane of its own, which says how late and leads there', async () => {
    const page = await open(recording('one_device.html'));
    const spot = await lateSpot(page);
    const red = await page.evaluate(({ x }) => {
      const canvas = document.getElementById('bars') as HTMLCanvasElement;
      const left = Math.round(x - canvas.getBoundingClientRect().left);
      return [...canvas.getContext('2d')!.getImageData(left, 20 + 30, 1, 1).data].slice(0, 3);
    }, spot);
    expect(red).toEqual([0xd1, 0x24, 0x2f]);
    await page.mouse.move(spot.x, spot.y);
    await page.waitForSelector('#tooltip:not([hidden])');
    expect(await page.$eval('#tooltip', (box) => box.textContent)).toContain('came last');
    await page.mouse.click(spot.x, spot.y);
    await page.waitForFunction((row) => window.strettoViewer!.selection() === row, {}, spot.row);
    expect(truthOf('one_device').rank[spot.row]).toBe(2);
  });

  it('is listed, worst first, and each entry shows all ranks of it', async () => {
    const page = await open(recording('one_device.html'));
    await page.click('#worst');
    await page.waitForSelector('#panel:not([hidden])');
    await drawn(page);
    const listed = await page.$$eval('#panel .link', (all) => all.map((one) => one.textContent!));
    expect(listed.length).toBe(2);
    expect(listed[0]).toMatch(/AllReduce #1.*rank 2.*\+26\.40 µs/);
    await page.click('#panel .link');
    await page.waitForFunction(() => window.strettoViewer!.selection() >= 0);
    await drawn(page);
    const text = await page.$eval('#panel', (panel) => panel.textContent!);
    for (const wanted of ['size4 KB', '1024 × float32', 'RING, SIMPLE, 2 channels', 'came last', 'bus bandwidth', 'On 4 ranks, by arrival']) {
      expect(text).toContain(wanted);
    }
    const arrivals = await page.$$eval('#panel .link', (all) => all.slice(0, 4).map((one) => one.querySelector('.where')!.textContent));
    expect(arrivals).toEqual(['rank 0', 'rank 1', 'rank 3', 'rank 2']);
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => document.getElementById('panel')!.textContent!.includes('The worst operations'));
    await page.keyboard.press('Escape');
    await page.waitForSelector('#panel', { hidden: true });
  });

  it('waited for whom between hosts: the proxies of a collective say', async () => {
    const page = await open(recording('one_device.html'), { hash: '#op=0xc0ffee0123456789,AllReduce,1' });
    await page.waitForSelector('#panel:not([hidden])');
    const waits = await page.$$eval('#panel .link[title*="chunks"]', (all) => all.map((one) => one.textContent!));
    expect(waits.length).toBe(8);
    expect(waits[0]).toBe('rank 0 for data from rank 35.000 µs');
    expect(waits.slice(4)).toEqual([0, 1, 2, 3].map((rank) => `rank ${rank} for room at rank ${(rank + 1) % 4}3.000 µs`));
    await page.click('#panel .link[title*="chunks"]');
    await page.waitForFunction(() => window.strettoViewer!.fields(window.strettoViewer!.selection())[0].value === 'ProxyOp');
  });

  it('is nobody at start-up, whose operations are listed apart', async () => {
    const page = await open(recording('one_device.html'), { hash: '#worst=1' });
    const listed = await page.$$eval('#panel h3, #panel .link', (all) => all.map((one) => one.textContent!));
    expect(listed.map((text) => text.replace(/\+.*/, ''))).toEqual(['AllReduce #1rank 2', 'At start-up', 'AllReduce #0']);
    const links = await page.$$('#panel .link');
    await links[1].click();
    await page.waitForFunction(() => window.strettoViewer!.selection() >= 0);
    await drawn(page);
    expect(await page.$eval('#panel', (panel) => panel.textContent)).toContain('came last, at start-up');
  });

  it('is not certain where ranks are missing, which is said first', async () => {
    const page = await open(recording('incomplete.html'), { hash: '#worst=1' });
    expect(await page.$eval('#quality-button', (one) => one.textContent)).toContain('rank 3 of dp0 is not recorded');
    const text = await page.$eval('#panel', (panel) => panel.textContent!);
    expect(text).toMatch(/^.?The worst operations.?Rank 3 of dp0 is not recorded\./);
    expect(await page.$eval('#panel .link .where', (one) => one.textContent)).toBe('rank 2 ?');
    expect(await page.evaluate(() => window.strettoViewer!.lanes()[1].detail)).toContain('3 of 4 ranks');
    // Its bar of lateness is pale.
    const spot = await lateSpot(page);
    const pale = await page.evaluate(({ x }) => {
      const canvas = document.getElementById('bars') as HTMLCanvasElement;
      return [...canvas.getContext('2d')!.getImageData(Math.round(x - canvas.getBoundingClientRect().left), 20 + 30, 1, 1).data];
    }, spot);
    expect(pale[0]).toBeGreaterThan(0xd1);
    expect(pale[1]).toBeGreaterThan(0x80);
    await page.click('#panel .link');
    await page.waitForFunction(() => window.strettoViewer!.selection() >= 0);
    await drawn(page);
    expect(await page.$eval('#panel', (panel) => panel.textContent)).toContain('not certainrank 3 of dp0 is not recorded: another may have come later');
  });

  it('is shown of all communicators once that is asked for', async () => {
    const page = await open(recording('many.html'));
    const lateness = (): Promise<number> => page.evaluate(() => window.strettoViewer!.lanes().filter((lane) => lane.kind === 'lateness').length);
    expect(await lateness()).toBe(12);
    const more = (await page.$('.lane[data-kind="more"]'))!;
    expect(await more.evaluate((one) => one.textContent)).toBe('show 3 more communicatorsup to 6.000 µs');
    await more.click();
    await drawn(page);
    expect(await lateness()).toBe(15);
    expect(await page.$('.lane[data-kind="more"]:not([hidden])')).toBe(null);
  });

  it('is linked to by what a report knows: the list, or one operation', async () => {
    const page = await open(recording('one_device.html'), { hash: '#worst=1' });
    expect(await page.$eval('#panel', (panel) => panel.textContent)).toContain('The worst operations');
    await page.close();
    const again = await open(recording('one_device.html'), { hash: '#op=0xc0ffee0123456789,AllReduce,1' });
    const row = await again.evaluate(() => window.strettoViewer!.selection());
    expect([truthOf('one_device').rank[row], truthOf('one_device').function[row]]).toEqual([2, 'AllReduce']);
  });

  it('makes the others wait, which is hollow where data that moves is full', async () => {
    const page = await open(recording('one_device.html'));
    await page.setViewport({ width: 1600, height: 2000 });
    await page.waitForFunction(() => window.strettoViewer!.view().height > 1500);
    await page.evaluate(() => window.strettoViewer!.draw());
    const seen = await page.evaluate(() => {
      const canvas = document.getElementById('bars') as HTMLCanvasElement;
      const kernels = window.strettoViewer!.bars().filter((bar) => bar.type === 6);
      const middle = (bar: (typeof kernels)[0], share: number): number[] => {
        const at = [Math.round(bar.x + bar.width * share), Math.round(bar.y) + 2] as const;
        return [...canvas.getContext('2d')!.getImageData(at[0], at[1], 1, 1).data].slice(0, 3);
      };
      // The first two are of the first collective, in step; the next two of the one that rank 2 was late to.
      return [middle(kernels[0], 0.9), middle(kernels[kernels.findIndex((bar) => bar.x > 700)], 0.9)];
    });
    expect(seen[0]).toEqual([0xe0, 0x7b, 0x12]);
    expect(Math.min(...seen[1])).toBeGreaterThan(0xc0);
  });
});

describe('controls', () => {
  it('say what is wrong with a filter', async () => {
    const page = await open(recording('one_device.html'));
    const fault = (): Promise<string> => page.$eval('#fault', (one) => ((one as HTMLElement).hidden ? '' : one.textContent!));
    await page.type('#query', 'rnak:2');
    await page.waitForSelector('#fault:not([hidden])');
    expect(await fault()).toMatch(/no field rnak.*rank/);
    await page.keyboard.press('Escape');
    await page.waitForSelector('#fault', { hidden: true });
    await page.type('#ranks', '2-1');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#fault:not([hidden])');
    expect(await fault()).toContain('say 1-2');
    expect(await page.$eval('#ranks', (one) => [one.getAttribute('aria-invalid'), (one as HTMLInputElement).value])).toEqual(['true', '2-1']);
  });

  it('say what is wrong with an address', async () => {
    const page = await open(recording('one_device.html'), { hash: '#ranks=2-1&op=0xc0ffee0123456789,AllReduce,9' });
    const text = await page.$eval('#fault', (one) => one.textContent);
    expect(text).toBe('Address: ranks=2-1: 2-1: from the lower to the higher rank, say 1-2. Address: op=0xc0ffee0123456789,AllReduce,9: this recording has no such operation.');
    await screenshot(page, 'address', { width: 1280, height: 400 });
    await page.keyboard.press('x');
    await page.waitForSelector('#fault', { hidden: true });
    await page.evaluate(() => void (location.hash = '#comm=7'));
    await page.waitForSelector('#fault:not([hidden])');
  });

  it('leave no box behind after a jump, and none over the panel', async () => {
    const page = await open(recording('one_device.html'));
    const bars = await page.evaluate(() => {
      const box = document.getElementById('overlay')!.getBoundingClientRect();
      return window.strettoViewer!.bars().map((bar) => ({ x: box.left + bar.x + bar.width / 2, y: box.top + bar.y + 6 }));
    });
    await page.mouse.click(bars[0].x, bars[0].y);
    await page.waitForSelector('#panel:not([hidden])');
    await drawn(page);
    const rightmost = await page.evaluate(() => {
      const box = document.getElementById('overlay')!.getBoundingClientRect();
      const some = window.strettoViewer!.bars().map((bar) => ({ x: box.left + bar.x + bar.width / 2, y: box.top + bar.y + 6 }));
      return some.filter((bar) => bar.x < box.right && bar.y < box.bottom).sort((a, b) => b.x - a.x)[0];
    });
    await page.mouse.move(rightmost.x, rightmost.y);
    await page.waitForSelector('#tooltip:not([hidden])');
    const [tip, panel] = await page.evaluate(() => ['tooltip', 'panel'].map((id) => document.getElementById(id)!.getBoundingClientRect().toJSON()));
    expect(tip.right).toBeLessThanOrEqual(panel.left);
    await page.keyboard.press('.');
    await page.waitForSelector('#tooltip', { hidden: true });
  });

  it('are all there at 800 pixels', async () => {
    const page = await open(recording('one_device.html'));
    await page.setViewport({ width: 800, height: 600 });
    await page.evaluate(() => window.strettoViewer!.select(3));
    await drawn(page);
    const outside = await page.$$eval('#bar button, #bar input, #bar summary, #panel, #stage', (all) =>
      all
        .filter((one) => one.closest('[hidden]') === null && one.closest('#communicator-list') === null)
        .filter((one) => one.getBoundingClientRect().right > 800.5 || one.getBoundingClientRect().width < 10)
        .map((one) => one.id || one.outerHTML.slice(0, 60)),
    );
    expect(outside).toEqual([]);
    expect(await page.$eval('#stage', (stage) => stage.clientWidth)).toBeGreaterThan(250);
  });

  it('search, walk the matches, and say how many there are', async () => {
    const page = await open(recording('aggregated.html'));
    await page.keyboard.press('/');
    await page.keyboard.type('type:coll reducescatter rank:2');
    await page.waitForFunction(() => window.strettoViewer!.matches() === 2);
    await page.keyboard.press('Enter');
    const first = await page.evaluate(() => window.strettoViewer!.selection());
    await page.keyboard.press('Enter');
    const second = await page.evaluate(() => window.strettoViewer!.selection());
    const truth = truthOf('aggregated');
    expect([first, second].map((row) => truth.function[row])).toEqual(['ReduceScatter', 'ReduceScatter']);
    expect([first, second].map((row) => truth.rank[row])).toEqual([2, 2]);
    await drawn(page);
    expect(await page.$eval('#found', (output) => output.textContent)).toBe('2 of 2');
  });

  it('filter by type, rank and communicator', async () => {
    const page = await open(recording('one_device.html'));
    const shown = (): Promise<string> => page.$eval('#shown', (one) => one.textContent!);
    expect(await shown()).toBe('128 events in 12 lanes');
    await page.click('.chip[aria-label^="ProxyStep"]');
    await page.waitForFunction(() => document.getElementById('shown')!.textContent!.startsWith('96 of'));
    await page.click('.chip[aria-label^="ProxyStep"]');
    await page.type('#ranks', '1-2');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.getElementById('shown')!.textContent!.startsWith('64 of'));
    await page.click('summary');
    await page.click('#communicator-list input');
    await page.waitForFunction(() => document.getElementById('shown')!.textContent!.startsWith('0 of'));
    expect(await page.$eval('#nothing', (one) => [(one as HTMLElement).hidden, one.textContent])).toEqual([
      false, 'The filters leave nothing to show.',
    ]);
  });

  it('zoom and move by keys, wheel and drag', async () => {
    const page = await open(recording('one_device.html'));
    const view = (): Promise<{ from: number; to: number }> => page.evaluate(() => window.strettoViewer!.view());
    const before = await view();
    await page.keyboard.press('w');
    const nearer = await view();
    expect(nearer.to - nearer.from).toBeCloseTo((before.to - before.from) / 1.4, 0);
    await page.keyboard.press('d');
    expect((await view()).from).toBeGreaterThan(nearer.from);
    await page.keyboard.press('a');
    await page.mouse.move(900, 500);
    await page.mouse.wheel({ deltaY: -300 });
    const wheeled = await view();
    expect(wheeled.to - wheeled.from).toBeLessThan(nearer.to - nearer.from);
    await page.mouse.down();
    await page.mouse.move(800, 500, { steps: 3 });
    await page.mouse.up();
    const dragged = await view();
    expect(dragged.from - wheeled.from).toBeCloseTo(((wheeled.to - wheeled.from) * 100) / 1336, 0);
    await page.keyboard.press('F');
    expect(await view()).toMatchObject({ from: before.from, to: before.to });
  });

  it('set marks, show the keys, change the theme', async () => {
    const page = await open(recording('one_device.html'));
    await page.keyboard.press('m');
    await page.waitForFunction(() => location.hash.includes('m='));
    await page.keyboard.press('?');
    expect(await page.$eval('#help', (help) => (help as HTMLDialogElement).open)).toBe(true);
    await page.keyboard.press('Escape');
    await page.click('#theme');
    expect(await page.$eval('html', (html) => html.dataset['theme'])).toBe('dark');
  });

  it('have names for those who do not see them, and are reached by Tab', async () => {
    const page = await open(recording('one_device.html'));
    const unnamed = await page.$$eval('button, input, summary, canvas[tabindex], [role]', (all) =>
      all
        .filter((one) => !(one as HTMLElement).hidden && one.closest('[hidden]') === null)
        .filter((one) => !(one.getAttribute('aria-label') || one.textContent!.trim() || one.getAttribute('aria-hidden') || one.closest('label')))
        .map((one) => one.outerHTML.slice(0, 80)),
    );
    expect(unnamed.filter((html) => !html.includes('tooltip'))).toEqual([]);
    const reached = new Set<string>();
    for (let press = 0; press < 60; press++) {
      await page.keyboard.press('Tab');
      reached.add(await page.evaluate(() => document.activeElement?.id ?? ''));
    }
    for (const id of ['query', 'ranks', 'toggle-parents', 'fit', 'help-button', 'overlay']) expect(reached).toContain(id);
  });
});

describe('pictures for the documentation', () => {
  const kSize = { width: 1280, height: 760 };

  it('are taken', async () => {
    let page = await open(recording('one_device.html'));
    await screenshot(page, 'viewer-timeline', { width: 1280, height: 960 });
    await page.evaluate(() => window.strettoViewer!.select(window.strettoViewer!.bars().filter((bar) => bar.type === 1)[1].row));
    await page.keyboard.press('f');
    await page.keyboard.press('t');
    await screenshot(page, 'viewer-pinned', kSize);
    await page.close();
    page = await open(recording('one_device.html'), { hash: '#worst=1' });
    await screenshot(page, 'viewer-worst', { width: 800, height: 560 });
    await page.close();
    page = await open(recording('aggregated.html'));
    await screenshot(page, 'viewer-aggregated', { width: 1280, height: 520 });
  });
});
