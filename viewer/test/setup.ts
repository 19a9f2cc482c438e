// Once for all tests: the page is built, and Python makes the recordings that are opened in it.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));

export default function setup(): void {
  execFileSync(process.execPath, [path('../build.mjs')], { stdio: 'inherit' });
  const own = path('../../.venv/bin/python');
  const python = process.env['PYTHON'] ?? (existsSync(own) ? own : 'python3');
  execFileSync(python, [path('make_recordings.py'), path('../.out/recordings')], { stdio: 'inherit' });
}
