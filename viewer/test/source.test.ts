import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { kDist } from './browser';

const folder = fileURLToPath(new URL('../src/', import.meta.url));
const sources = readdirSync(folder).filter((name) => name.endsWith('.ts'));

it.each(sources)('%s makes no markup of text, and runs none', (name) => {
  const text = readFileSync(folder + name, 'utf8').replace(/^\s*\/\/.*$/gm, '');
  expect(text).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/);
  expect(text).not.toMatch(/\bfetch\(|XMLHttpRequest|WebSocket|import\(/);
});

it('the page is one file that needs no other, below 150 KB', () => {
  const page = readFileSync(kDist, 'utf8');
  expect(page.length).toBeLessThan(150 * 1024);
  expect(page).not.toMatch(/(src|href)\s*=\s*"(?!data:)/);
  expect(page).not.toMatch(/@import|url\(/);
  expect(page).toMatch(/default-src 'none'; script-src 'sha256-/);
});
