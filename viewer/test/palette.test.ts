// The colours of the types under the three kinds of colour blindness (Machado, Oliveira and Fernandes 2009, severity 1).

import { describe, expect, it } from 'vitest';
import { kKinds } from '../src/events';
import { kDark, kLight, luminance, parseColour } from '../src/theme';

type Matrix = readonly (readonly [number, number, number])[];

const kSights: Record<string, Matrix> = {
  all: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

const linear = (value: number): number => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);

/** OKLab of what somebody sees. */
function seen(colour: string, sight: Matrix): [number, number, number] {
  const given = parseColour(colour).map((value) => linear(value / 255));
  const [r, g, b] = sight.map((row) => Math.min(1, Math.max(0, row[0] * given[0] + row[1] * given[1] + row[2] * given[2])));
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function apart(a: string, b: string, sight: Matrix): number {
  const [x, y] = [seen(a, sight), seen(b, sight)];
  return Math.hypot(x[0] - y[0], x[1] - y[1], x[2] - y[2]);
}

// Types that lie side by side in one lane: neighbours in the hierarchy. Those must never be taken for each other.
const kNeighbours = [
  [8, 9], [8, 10], [8, 11], [9, 11], [10, 11], [11, 0], [11, 1], [0, 1], [0, 2], [9, 1], [10, 2], [1, 3], [3, 4], [5, 3], [5, 4], [4, 7],
  [6, 15], [12, 13], [12, 14], [13, 14], [9, 10], [1, 2], [11, 6],
] as const;

describe.each([['light', kLight], ['dark', kDark]] as const)('the %s colours', (name, theme) => {
  const colour = (type: number): string => kKinds.find((kind) => kind.type === type)![name];

  it.each(Object.keys(kSights))('keep neighbours apart with %s', (sight) => {
    for (const [a, b] of kNeighbours) {
      expect(apart(colour(a), colour(b), kSights[sight]), `${a} and ${b}`).toBeGreaterThan(0.08);
    }
  });

  it('are all different', () => {
    for (const a of kKinds) for (const b of kKinds) if (a !== b) expect(apart(a[name], b[name], kSights['all'])).toBeGreaterThan(0.04);
  });

  it('carry names that can be read', () => {
    for (const kind of kKinds) {
      const [on, bar] = [luminance(theme.onBar[kind.type]), luminance(kind[name])];
      expect((Math.max(on, bar) + 0.05) / (Math.min(on, bar) + 0.05), kind.name).toBeGreaterThan(4.3);
    }
  });
});
