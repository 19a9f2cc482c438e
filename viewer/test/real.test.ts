// Real recordings: the three examples of examples/profiler run on CPU ranks under the profiler plugin, and what the page shows
// is held against the recording as `stretto trace convert` writes it, one callback a line.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Browser } from 'puppeteer-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { kindOf } from '../src/events';
import { kOut, launch, openPage, screenshot } from './browser';

const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));
const kBuild = process.env['STRETTO_BUILD'] ?? path('../../build');
const kStretto = path('../../.venv/bin/stretto');

interface Call {
  call: string;
  type: string;
  ts_ns: number;
  id: string;
  parent: string | null;
  rank: number;
  comm: string;
  function: string | null;
  sequence: number | null;
}

let browser: Browser;
beforeAll(async () => void (browser = await launch()));
afterAll(() => browser.close());

function run(...command: string[]): string {
  return execFileSync(command[0], command.slice(1), { encoding: 'utf8', timeout: 60000, maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'pipe'] });
}

/** Records an example; gives its callbacks and the page made of it. */
function record(example: string): { calls: Call[]; page: string } {
  const program = `${kBuild}/tests/profiler/example_${example}`;
  const plugin = `${kBuild}/plugins/libnccl-profiler-stretto.so`;
  for (const file of [program, plugin, kStretto]) {
    if (!existsSync(file)) throw new Error(`${file} is not there: \`make build\` builds it`);
  }
  mkdirSync(`${kOut}real`, { recursive: true });
  const folder = `${kOut}real/${example}`;
  rmSync(folder, { recursive: true, force: true });
  run(kStretto, 'trace', 'record', '-o', folder, '--plugin', plugin, '--', program);
  run(kStretto, 'trace', 'view', folder, '-o', `${folder}.html`);
  const lines = run(kStretto, 'trace', 'convert', folder, '--to', 'jsonl', '-o', '-').trim().split('\n');
  // Times since 1970 in ns do not fit a double: the last 15 digits do, and count from the same moment everywhere.
  const calls = lines.map((line) => JSON.parse(line.replace(/"ts_ns": ?\d*(\d{15})/, (_, digits: string) => `"ts_ns":${Number(digits)}`)));
  return { calls: calls as Call[], page: `${folder}.html` };
}

const kExamples = {
  one_device_per_thread: { GroupApi: 2, CollApi: 2, KernelLaunch: 2, Group: 2, Coll: 2 },
  several_devices_per_thread: { GroupApi: 1, CollApi: 2, KernelLaunch: 2, Group: 2, Coll: 2 },
  aggregated: { GroupApi: 2, CollApi: 10, KernelLaunch: 2, Group: 2, Coll: 10 },
} as const;

describe.each(Object.entries(kExamples))('the recording of %s', (example, counts) => {
  it('is shown as it is: bars, times, states, lanes and lines', async () => {
    const { calls, page: file } = record(example);
    const starts = calls.filter((call) => call.call === 'start');
    const { page, faults } = await openPage(browser, file);
    await screenshot(page, `real-${example}`);
    await page.setViewport({ width: 1600, height: 2400 });
    await page.waitForFunction(() => window.strettoViewer!.view().height > 1800);
    const shown = await page.evaluate(() => {
      const viewer = window.strettoViewer!;
      viewer.draw();
      const bars = viewer.bars().map((bar) => ({ ...bar, states: viewer.states(bar.row).length, fields: viewer.fields(bar.row) }));
      return { bars, lines: viewer.lines(), lanes: viewer.lanes(), view: viewer.view(), width: document.getElementById('bars')!.clientWidth };
    });
    const field = (bar: (typeof shown.bars)[number], name: string): string => bar.fields.find((one) => one.name === name)?.value ?? '';

    // Every start is a bar, of its type and with its states, in the numbers that this setting of NCCL's has.
    const barOf = new Map(shown.bars.map((bar) => [field(bar, 'id'), bar]));
    expect([...barOf.keys()].sort()).toEqual(starts.map((call) => call.id).sort());
    const found: Record<string, number> = {};
    for (const bar of shown.bars) found[kindOf(bar.type).name] = (found[kindOf(bar.type).name] ?? 0) + 1;
    // The proxy's thread sleeps and wakes when the scheduler lets it.
    delete found['ProxyCtrl'];
    expect(found).toEqual(counts);

    // Times: where a bar lies is when its calls came.
    const first = Math.min(...starts.map((call) => call.ts_ns));
    const left = Math.min(...shown.bars.map((bar) => bar.x));
    const perPixel = (shown.view.to - shown.view.from) / shown.width;
    for (const call of starts) {
      const bar = barOf.get(call.id)!;
      expect(kindOf(bar.type).name).toBe(call.type);
      expect(Math.abs((bar.x - left) * perPixel - (call.ts_ns - first)), call.type).toBeLessThan(2);
      const stop = calls.find((one) => one.call === 'stop' && one.id === call.id);
      if (stop !== undefined && bar.width > 1) expect(Math.abs(bar.width * perPixel - (stop.ts_ns - call.ts_ns))).toBeLessThan(2);
      expect(bar.states).toBe(calls.filter((one) => one.call === 'state' && one.id === call.id).length);
    }

    // Lanes: one member a rank, one thread below it.
    const ranks = [...new Set(starts.map((call) => call.rank))].sort();
    const members = shown.lanes.filter((lane) => lane.kind === 'member').map((lane) => lane.label);
    expect(members).toEqual(ranks.map((rank) => `rank ${rank} of ${ranks.length}`));

    // Lines: one to each parent, one through each collective.
    const ids = new Map(shown.bars.map((bar) => [bar.row, field(bar, 'id')]));
    const parents = starts.filter((call) => call.parent !== null && barOf.has(call.parent)).map((call) => `${call.id} ${call.parent}`);
    expect(parents.length).toBeGreaterThan(0);
    expect(shown.lines.parents.map((line) => `${ids.get(line.child)} ${ids.get(line.parent)}`).sort()).toEqual(parents.sort());
    const joined = new Map<string, string[]>();
    for (const call of starts) {
      if (call.type !== 'Coll') continue;
      const key = `${call.comm} ${call.function} ${call.sequence}`;
      joined.set(key, [...(joined.get(key) ?? []), call.id].sort());
    }
    const reds = shown.lines.collectives.map((rows) => rows.map((row) => ids.get(row)!).sort());
    expect(reds.sort((a, b) => (a[0] < b[0] ? -1 : 1))).toEqual([...joined.values()].sort((a, b) => (a[0] < b[0] ? -1 : 1)));
    expect(faults).toEqual([]);
    await page.close();
  });
});
