// Builds dist/viewer.html: one file that holds the style and the script, and asks the network for nothing. Its policy lets only
// this very script run, whatever a recording may hold. The script is deflated, which makes the page half as large; a few lines
// beside it (src/loader.ts) unpack it.
import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { deflateSync } from 'node:zlib';
import { build, transform } from 'esbuild';

const here = (path) => new URL(path, import.meta.url);

async function bundle(entry) {
  const bundled = await build({
    entryPoints: [here(entry).pathname],
    bundle: true,
    minify: true,
    write: false,
    format: 'iife',
    target: 'es2022',
    charset: 'ascii',
    legalComments: 'none',
  });
  return bundled.outputFiles[0].text.trim().replaceAll('</script', '<\\/script');
}

const program = `${await bundle('src/main.ts')}\n//# sourceURL=viewer.js`;
const loader = await bundle('src/loader.ts');
const kinds = [...(await readFile(here('src/events.ts'), 'utf8')).matchAll(/\{ type: (\d+), name/g)].map((match) => match[1]);
const swatches = kinds.map((type) => `.type-${type}{background:var(--type-${type})}`).join('');
const style = (await transform((await readFile(here('src/style.css'), 'utf8')) + swatches, { loader: 'css', minify: true })).code.trim();
const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
const policy = [
  "default-src 'none'",
  `script-src ${hash(loader)} ${hash(program)}`,
  `style-src ${hash(style)}`,
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');
const packed = deflateSync(program, { level: 9 }).toString('base64');

let page = (await readFile(here('src/index.html'), 'utf8')).replaceAll(/\n\s*/g, '\n');
for (const [mark, text] of [['CSP_HERE', policy], ['STYLE_HERE', style], ['PROGRAM_HERE', packed], ['LOADER_HERE', loader]]) {
  if (page.split(mark).length !== 2) throw new Error(`src/index.html must hold ${mark} once`);
  page = page.replace(mark, () => text);
}
await mkdir(here('dist'), { recursive: true });
await writeFile(here('dist/viewer.html'), page);
console.log(`dist/viewer.html: ${Math.ceil(page.length / 1024)} KB`);
