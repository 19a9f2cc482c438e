import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { BundleError, bundleOfFile, decodeBase64, decodeBundle, openPayload } from '../src/bundle';
import { kShowAll, layOut } from '../src/layout';
import { relativesOf } from '../src/relations';
import { Lateness } from '../src/lateness';
import { parseQuery, search } from '../src/search';
import { Store } from '../src/store';
import { kOut } from './browser';
import { pack, payloadOf, randoms, type Contents } from './make_bundle';

const kSome: Contents = {
  events: [
    { type: 8, start: 10, stop: 100, process: 0, thread: 0, context: 0, id: 1 },
    { type: 9, start: 20, stop: 40, process: 0, thread: 0, context: 0, parent: 0, function: 1, id: 2 },
    { type: 1, start: 50, stop: 90, process: 0, thread: 0, context: 0, parent: 1, function: 1, sequence: 0, id: 3 },
    { type: 4, start: 60, process: 0, thread: 1, context: 0, parent: 2, id: 4 },
  ],
  states: [{ span: 3, time: 65, state: 8 }],
};

const made = (name: string): Uint8Array => new Uint8Array(readFileSync(`${kOut}recordings/${name}`));

describe('a good bundle', () => {
  it('gives back what was written', async () => {
    const bundle = await decodeBundle(pack(payloadOf(kSome)));
    expect(bundle.originRealtimeNs).toBe(1763700000000000000n);
    expect(bundle.spans.rows).toBe(4);
    expect(Array.from(bundle.spans.columns.get('start')!.doubles(-1))).toEqual([10, 20, 50, 60]);
    expect(bundle.spans.columns.get('duration')!.exact(3)).toBeNull();
    expect(bundle.spans.columns.get('sequence')!.get(0)).toBeNaN();
  });

  it('is what Python writes too, in every kind of column', async () => {
    const bundle = await decodeBundle(made('one_device.stretview'));
    const truth = JSON.parse(readFileSync(`${kOut}recordings/one_device.json`, 'utf8'));
    const store = new Store(bundle);
    expect(store.rows).toBe(truth.events);
    expect(Array.from(store.start)).toEqual(truth.start);
    expect(Array.from(store.end)).toEqual(truth.stop);
    expect(Array.from(store.type)).toEqual(truth.type);
    expect(Array.from(store.rank)).toEqual(truth.rank);
    expect(Array.from(store.parent)).toEqual(truth.parent);
    expect(Array.from({ length: store.rows }, (_, row) => `0x${bundle.spans.columns.get('id')!.exact(row)!.toString(16)}`)).toEqual(truth.id);
    expect(Array.from(store.function, (at) => store.text(at))).toEqual(truth.function);
    expect(Array.from(store.states.offsets.slice(1), (end, row) => end - store.states.offsets[row])).toEqual(truth.states);
    // Numbers beyond 2^53, beside gaps: %globaltimer.
    const kernel = store.type.indexOf(6);
    expect(bundle.spans.columns.get('gpu_start')!.exact(kernel)! >> 60n).toBe(1n);
    expect(bundle.spans.columns.get('gpu_start')!.exact(0)).toBeNull();
  });

  it('is found in a page', async () => {
    const inPage = bundleOfFile(made('devices.html'));
    expect(Buffer.from(inPage).equals(Buffer.from(made('devices.stretview')))).toBe(true);
    expect(bundleOfFile(made('devices.stretview')).byteLength).toBe(made('devices.stretview').byteLength);
  });
});

describe('base64', () => {
  it('is decoded with any padding, and refused when it is none', () => {
    for (const text of ['', 'f', 'fo', 'foo', 'foob']) {
      expect(Buffer.from(decodeBase64(` ${Buffer.from(text).toString('base64')}\n`)).toString()).toBe(text);
    }
    for (const wrong of ['ab!d', 'abc', 'äbcd']) expect(() => decodeBase64(wrong)).toThrow(BundleError);
  });
});

/** Opens as the page does; whatever is wrong must be said as a BundleError and within bounds. */
function exercise(payload: Uint8Array): 'opened' | 'refused' {
  try {
    const store = new Store(openPayload(payload));
    const layout = layOut(store, kShowAll);
    const tests = parseQuery(store, 'a 7');
    if (typeof tests !== 'string') search(store, tests);
    new Lateness(store).worst(10, () => true);
    for (let row = 0; row < Math.min(store.rows, 50); row++) relativesOf(store, row);
    expect(layout.shown).toBeLessThanOrEqual(store.rows);
    return 'opened';
  } catch (error) {
    if (error instanceof BundleError) return 'refused';
    throw error;
  }
}

describe('a bad bundle', () => {
  const refused = (file: Uint8Array): Promise<void> => expect(decodeBundle(file)).rejects.toThrow(BundleError);

  it('is refused in words', async () => {
    await expect(decodeBundle(new Uint8Array(0))).rejects.toThrow('empty');
    await expect(decodeBundle(new TextEncoder().encode('{"traceEvents": []}'))).rejects.toThrow('not a recording');
    await expect(decodeBundle(new TextEncoder().encode('STRETREC and more'))).rejects.toThrow('stretto trace view FOLDER');
    const good = pack(payloadOf(kSome));
    const newer = good.slice();
    newer[8] = 9;
    await expect(decodeBundle(newer)).rejects.toThrow('version 9');
    await expect(decodeBundle(good.slice(0, good.length - 30))).rejects.toThrow('damaged');
    expect(() => bundleOfFile(new TextEncoder().encode('<!doctype html><p>else'))).toThrow('no recording');
  });

  it('is refused wherever it is cut off', async () => {
    const good = pack(payloadOf(kSome));
    for (let length = 0; length < good.length; length += 7) await refused(good.slice(0, length));
  });

  it('gets no more memory than its size can need', async () => {
    await refused(pack(payloadOf(kSome), 2 ** 31));
    await refused(pack(payloadOf(kSome), 8));
  });

  it('is refused where a header lies', () => {
    const changes: ((header: Record<string, any>) => void)[] = [
      (header) => (header['spans'].rows = 1e9),
      (header) => (header['spans'].rows = -1),
      (header) => (header['spans'].rows = 1.5),
      (header) => (header['spans'].columns[0].offset = 1e9),
      (header) => (header['spans'].columns[0].offset = 3),
      (header) => (header['spans'].columns[0].type = 'toString'),
      (header) => (header['spans'].columns[0].base = 'x'),
      (header) => (header['threads'][0].process = 7),
      (header) => delete header['strings'],
      (header) => (header['schema'] = 'stretto.view/2'),
      (header) => (header['contexts'] = [null]),
    ];
    for (const change of changes) expect(exercise(payloadOf(kSome, change))).toBe('refused');
  });

  it('never does harm: 3,000 damaged payloads', () => {
    const random = randoms(7);
    const good = payloadOf(kSome);
    const headerEnd = 4 + Buffer.from(good).readUInt32LE(0);
    let opened = 0;
    for (let round = 0; round < 3000; round++) {
      const bad = good.slice();
      const inColumns = round % 2 === 0;
      for (let flips = 1 + Math.floor(random() * 4); flips > 0; flips--) {
        const at = inColumns ? headerEnd + random() * (bad.length - headerEnd) : random() * headerEnd;
        bad[Math.floor(at)] = inColumns ? random() * 256 : '0123456789-e,:"{}[]x'.charCodeAt(random() * 20);
      }
      if (exercise(bad) === 'opened') opened++;
    }
    // Both ends are reached: damage in numbers mostly opens, damage in the header mostly does not.
    expect(opened).toBeGreaterThan(100);
    expect(opened).toBeLessThan(2900);
  });
});
