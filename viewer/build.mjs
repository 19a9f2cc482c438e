// Builds dist/viewer.html: one file that holds the style and the script, and asks the network for nothing. Its policy lets only
// this very script run, whatever a recording may hold.
import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { build } from 'esbuild';

const here = (path) => new URL(path, import.meta.url);
const bundled = await build({
  entryPoints: [here('src/main.ts').pathname],
  bundle: true,
  minify: true,
  write: false,
  format: 'iife',
  target: 'es2022',
  charset: 'ascii',
  legalComments: 'none',
});
const script = bundled.outputFiles[0].text.replaceAll('</script', '<\\/script');
const kinds = [...(await readFile(here('src/events.ts'), 'utf8')).matchAll(/\{ type: (\d+), name/g)].map((match) => match[1]);
const swatches = kinds.map((type) => `.type-${type}{background:var(--type-${type})}`).join('');
const style = (await readFile(here('src/style.css'), 'utf8')).replaceAll(/\n\s*/g, '\n') + swatches;
const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

let page = await readFile(here('src/index.html'), 'utf8');
for (const [mark, text] of [['CSP_HERE', policy], ['STYLE_HERE', style], ['SCRIPT_HERE', script]]) {
  if (page.split(mark).length !== 2) throw new Error(`src/index.html must hold ${mark} once`);
  page = page.replace(mark, () => text);
}
await mkdir(here('dist'), { recursive: true });
await writeFile(here('dist/viewer.html'), page);
console.log(`dist/viewer.html: ${Math.ceil(page.length / 1024)} KB`);
