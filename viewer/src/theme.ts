// Colours of what is drawn on canvases, for the light and the dark theme; style.css has those of the page around them.

import { kKinds } from './events';
import { mix, pack, type Colours } from './raster';

export interface Theme {
  readonly name: 'light' | 'dark';
  readonly look: Colours;
  readonly header: number;
  readonly grid: number;
  readonly text: string;
  readonly muted: string;
  readonly rule: string;
  readonly parentLine: string;
  readonly collectiveLine: string;
  readonly halo: string;
  readonly mark: string;
  readonly shade: string;
  /** Over the part of a bar that is waiting. */
  readonly hollow: string;
  /** By type: what is readable on its bar. */
  readonly onBar: string[];
  readonly bar: string[];
}

export function parseColour(text: string): [number, number, number] {
  const value = Number.parseInt(text.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/** WCAG's relative luminance. */
export function luminance(text: string): number {
  const [red, green, blue] = parseColour(text).map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

export function readableOn(colour: string): string {
  return luminance(colour) > 0.19 ? '#11161b' : '#ffffff';
}

function makeTheme(name: 'light' | 'dark', base: Omit<Theme, 'name' | 'look' | 'onBar' | 'bar'> & { background: string }): Theme {
  const background = pack(...parseColour(base.background));
  const unknown = kKinds[kKinds.length - 1][name];
  const bar: string[] = new Array<string>(256).fill(unknown);
  for (const kind of kKinds) bar[kind.type] = kind[name];
  const bars = Uint32Array.from(bar, (colour) => pack(...parseColour(colour)));
  const faded = bars.map((colour) => mix(background, colour, 0.3));
  return { ...base, name, bar, onBar: bar.map(readableOn), look: { bars, faded, background } };
}

export const kLight = makeTheme('light', {
  background: '#ffffff',
  header: pack(0xf3, 0xf5, 0xf7),
  grid: pack(0xec, 0xef, 0xf2),
  text: '#1b2127',
  muted: '#66707b',
  rule: '#d5dbe1',
  parentLine: '#1a5fd0',
  collectiveLine: '#d1242f',
  halo: 'rgba(255,255,255,0.85)',
  mark: '#8a3ffc',
  shade: 'rgba(26,95,208,0.10)',
  hollow: 'rgba(255,255,255,0.78)',
});

export const kDark = makeTheme('dark', {
  background: '#14181d',
  header: pack(0x1b, 0x21, 0x28),
  grid: pack(0x20, 0x27, 0x2f),
  text: '#e3e8ed',
  muted: '#8e99a5',
  rule: '#303943',
  parentLine: '#6ea8ff',
  collectiveLine: '#ff6b6b',
  halo: 'rgba(20,24,29,0.85)',
  mark: '#be95ff',
  shade: 'rgba(110,168,255,0.14)',
  hollow: 'rgba(20,24,29,0.74)',
});
