import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { inflateSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { kDist } from './browser';

const folder = fileURLToPath(new URL('../src/', import.meta.url));
const sources = readdirSync(folder).filter((name) => name.endsWith('.ts'));

it.each(sources)('%s makes no markup of text, and runs none', (name) => {
  const text = readFileSync(folder + name, 'utf8').replace(/^\s*\/\/.*$/gm, '');
  expect(text).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/);
  expect(text).not.toMatch(/\bfetch\(|XMLHttpRequest|WebSocket|import\(/);
});

/** The program that the page unpacks, and the page without it. */
function taken(): { page: string; program: string } {
  const page = readFileSync(kDist, 'utf8');
  const packed = /id="program">([A-Za-z0-9+/=]+)<\/script>/.exec(page)![1];
  return { page: page.replace(packed, ''), program: inflateSync(Buffer.from(packed, 'base64')).toString() };
}

it('the page is one file that needs no other, below 85 KB', () => {
  expect(readFileSync(kDist).length).toBeLessThan(85_000);
  const { page, program } = taken();
  for (const text of [page, program]) {
    expect(/(src|href)\s*=\s*"(?!data:)/.exec(text)).toBe(null);
    expect(/@import|url\(/.exec(text)).toBe(null);
  }
  expect(page).toMatch(/default-src 'none'; script-src 'sha256-/);
});

it('the policy of the page names its two scripts and no other', () => {
  const { page, program } = taken();
  const loader = /<script>([^<]*)<\/script>/.exec(page)![1];
  const hashes = [loader, program].map((text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`);
  expect(/script-src ([^;]*);/.exec(page)![1]).toBe(hashes.join(' '));
});
