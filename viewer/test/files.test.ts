// Headless Chromium opens what is no recording, what wants to be more than one, and pages that were changed.

import { readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { deflateSync } from 'node:zlib';
import type { Browser, Page } from 'puppeteer-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { kOut, launch, openPage, type Opened } from './browser';

const recording = (name: string): string => `${kOut}recordings/${name}`;

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

async function open(file: string): Promise<Page> {
  opened = await openPage(browser, file);
  return opened.page;
}

it('a browser that cannot unpack the program is told so, and offered nothing that does not work', async () => {
  const page = await (await browser.createBrowserContext()).newPage();
  await page.evaluateOnNewDocument(() => void Reflect.deleteProperty(window, 'DecompressionStream'));
  await page.goto(pathToFileURL(recording('empty.html')).href);
  await page.waitForFunction(() => !document.getElementById('welcome')!.hidden);
  expect(await page.$eval('#headline', (one) => one.textContent)).toBe('This page cannot start');
  expect(await page.$eval('#explanation', (one) => one.textContent)).toContain('a browser of 2023 or later');
  expect(await page.$eval('.choose', (one) => (one as HTMLElement).checkVisibility())).toBe(false);
  await page.close();
  expect(readFileSync(recording('empty.html'), 'utf8')).toContain('<noscript>');
});

describe('files that are no recordings', () => {
  const template = (): string => readFileSync(recording('empty.html'), 'utf8');
  const kMark = /(id="recording">)[^<]*(<\/script>)/;

  async function said(data: string): Promise<string> {
    const file = recording('broken.html');
    writeFileSync(file, template().replace(kMark, (_, open: string, close: string) => open + data + close));
    const page = await open(file);
    return page.$eval('#welcome', (one) => ((one as HTMLElement).hidden ? 'hidden' : one.textContent!));
  }

  it('are told to people', async () => {
    const whole = readFileSync(recording('one_device.stretview'));
    expect(await said('')).toContain('Drop a recording here');
    await opened!.page.close();
    expect(await said('!!!!')).toContain('cannot be decoded');
    await opened!.page.close();
    expect(await said(whole.subarray(0, 2000).toString('base64'))).toContain('damaged');
    await opened!.page.close();
    const corrupt = Buffer.from(whole);
    corrupt.fill(0x55, 500, 600);
    expect(await said(corrupt.toString('base64'))).toContain('damaged');
  });

  it('and one without events is open, and says why that may be', async () => {
    const page = await open(recording('empty.html'));
    expect(await page.$eval('#nothing', (one) => one.textContent)).toContain('holds no events');
  });

  it('can be followed by a good one, dropped or chosen', async () => {
    expect(await said('')).toContain('Drop');
    const page = opened!.page;
    const input = (await page.$('#file'))!;
    await (input as unknown as { uploadFile(path: string): Promise<void> }).uploadFile(recording('devices.stretview'));
    await page.waitForFunction(() => window.strettoViewer?.events === 17);
    await page.close();
    await said('');
    const html = readFileSync(recording('aggregated.html')).toString('base64');
    await opened!.page.evaluate((data) => {
      const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
      const transfer = new DataTransfer();
      transfer.items.add(new File([bytes], 'aggregated.html'));
      document.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, cancelable: true }));
    }, html);
    await opened!.page.waitForFunction(() => window.strettoViewer?.events === 52);
  });

  it('can be dropped on a page that shows another, which goes', async () => {
    const page = await open(recording('one_device.html'));
    await page.keyboard.press('m');
    const drop = (data: string): Promise<void> =>
      page.evaluate((text) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([Uint8Array.from(atob(text), (one) => one.charCodeAt(0))], 'devices.stretview'));
        document.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, cancelable: true }));
      }, data);
    await drop(readFileSync(recording('devices.stretview')).toString('base64'));
    await page.waitForFunction(() => window.strettoViewer?.events === 17 && document.getElementById('shown')!.textContent!.startsWith('17 '));
    // One key is one move: nothing of the first recording listens any more.
    const before = await page.evaluate(() => window.strettoViewer!.view());
    await page.keyboard.press('w');
    const after = await page.evaluate(() => window.strettoViewer!.view());
    expect(after.to - after.from).toBeCloseTo((before.to - before.from) / 1.4, 0);
    // What cannot be opened leaves the way back.
    await drop(Buffer.from('no recording').toString('base64'));
    await page.waitForFunction(() => !document.getElementById('welcome')!.hidden && document.getElementById('headline')!.textContent !== 'Opening…');
    await page.click('#back');
    expect(await page.$eval('#shown', (one) => one.textContent)).toContain('17 events');
  });
});

describe('a hostile recording', () => {
  it('is text wherever it is shown, and runs nothing', async () => {
    const page = await open(recording('hostile.html'));
    await page.evaluate(() => {
      const viewer = window.strettoViewer!;
      for (const bar of viewer.bars()) {
        viewer.select(bar.row);
        viewer.draw();
      }
    });
    await page.click('#quality-button');
    const bar = await page.evaluate(() => {
      const box = document.getElementById('overlay')!.getBoundingClientRect();
      const bar = window.strettoViewer!.bars()[0];
      return { x: box.left + bar.x + 5, y: box.top + bar.y + 5 };
    });
    await page.keyboard.press('Escape');
    await page.mouse.move(bar.x, bar.y);
    await page.keyboard.press('/');
    await page.keyboard.type('<img src=x onerror=window.hacked=1>');
    await new Promise((done) => setTimeout(done, 300));
    const found = await page.evaluate(() => ({
      hacked: 'hacked' in window,
      scripts: document.scripts.length,
      foreign: document.querySelectorAll('img, svg, b, i, iframe, object, a').length,
      text: document.getElementById('gutter')!.textContent!.includes('</script><script>window.hacked=1</script>'),
      notes: document.getElementById('quality-content')!.textContent!.includes('<img src=x onerror="window.hacked=1">'),
    }));
    expect(found).toEqual({ hacked: false, scripts: 2, foreign: 0, text: true, notes: true });
  });

  it('could not run anything even if markup came through: the policy forbids it', async () => {
    const page = await open(recording('devices.html'));
    await page.evaluate(() => {
      const script = document.createElement('script');
      script.textContent = 'window.hacked = 1';
      document.body.append(script);
      document.body.insertAdjacentHTML('beforeend', '<img src="x" onerror="window.hacked = 1">');
    });
    await new Promise((done) => setTimeout(done, 200));
    expect(await page.evaluate(() => 'hacked' in window)).toBe(false);
    expect(opened!.faults.length).toBeGreaterThan(0);
    opened!.faults.length = 0;
  });
});

describe('the program, which the page unpacks', () => {
  /** A page with another program in it. */
  async function withProgram(packed: string): Promise<Page> {
    const file = recording('program.html');
    writeFileSync(file, readFileSync(recording('devices.html'), 'utf8').replace(/(id="program">)[^<]*/, (_, mark: string) => mark + packed));
    return open(file);
  }

  it('does not run where it was changed: the policy forbids it', async () => {
    const page = await withProgram(deflateSync('window.hacked = 1').toString('base64'));
    expect(await page.$eval('#welcome', (one) => one.textContent)).toContain('the script was refused');
    expect(await page.evaluate(() => 'hacked' in window)).toBe(false);
    expect(opened!.faults.join()).toContain('Content Security Policy');
    opened!.faults.length = 0;
  });

  it('says so where it is damaged', async () => {
    const page = await withProgram('eJyrVkoqyszLVrJSqlYqLskvys');
    expect(await page.$eval('#welcome', (one) => one.textContent)).toContain('This page cannot start');
    opened!.faults.length = 0;
  });
});
