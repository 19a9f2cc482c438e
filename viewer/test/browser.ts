// Headless Chromium for tests: one browser for a file of tests, pages that fail the test on any error they log.

import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import puppeteer, { type Browser, type Page } from 'puppeteer-core';

export const kOut = fileURLToPath(new URL('../.out/', import.meta.url));
export const kDist = fileURLToPath(new URL('../dist/viewer.html', import.meta.url));

function chromium(): string {
  const named = process.env['CHROMIUM'];
  const found = [named, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(
    (path) => path !== undefined && existsSync(path),
  );
  if (found === undefined) throw new Error('no Chromium: `make setup` installs it, or CHROMIUM names one');
  return found;
}

/** `patience`: how long the browser may take to answer one question, in ms; no wait of a page is longer. */
export function launch(patience = 60_000): Promise<Browser> {
  return puppeteer.launch({
    executablePath: chromium(),
    headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--hide-scrollbars', '--force-color-profile=srgb'],
    protocolTimeout: patience,
  });
}

export interface Opened {
  readonly page: Page;
  /** What the page logged as an error, threw, or asked the network for. */
  readonly faults: string[];
}

export async function openPage(browser: Browser, file: string, options: { hash?: string; dark?: boolean; timeout?: number } = {}): Promise<Opened> {
  // What one page remembers (its theme) is not another's.
  const page = await (await browser.createBrowserContext()).newPage();
  await page.setViewport({ width: 1600, height: 900 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: options.dark ? 'dark' : 'light' }]);
  const faults: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error') faults.push(message.text());
  });
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('request', (request) => {
    if (!/^(file|blob|data):/.test(request.url())) faults.push(`asked for ${request.url()}`);
  });
  if (options.timeout !== undefined) page.setDefaultTimeout(options.timeout);
  await page.goto(`${pathToFileURL(file).href}${options.hash ?? ''}`);
  await page.waitForFunction(() => !document.getElementById('workspace')!.hidden || !document.getElementById('welcome')!.hidden);
  await page.waitForFunction(() => document.getElementById('headline')!.textContent !== 'Opening…');
  return { page, faults };
}

/** What was changed before is on the screen: pages draw once a frame. */
export function drawn(page: Page): Promise<void> {
  return page.evaluate(() => new Promise<void>((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))));
}

export async function screenshot(page: Page, name: string, size?: { width: number; height: number }): Promise<void> {
  if (size !== undefined) {
    await page.setViewport(size);
    await new Promise((done) => setTimeout(done, 300));
  }
  await mkdir(kOut, { recursive: true });
  await writeFile(`${kOut}${name}.png`, await page.screenshot({ type: 'png' }));
}
