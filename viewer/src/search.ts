// Search: words that must all be found in an event's names and fields. A word may name its field ("rank:3",
// "function:AllReduce") or compare a length of time or a number ("duration>100us", "count>=4096").

import { kindOf, kKinds, stateName } from './events';
import { listOf, type Store } from './store';

type Test = (row: number) => boolean;

const kTimeUnits: Readonly<Record<string, number>> = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9 };
const kComparison = /^([a-z_]+)(>=|<=|>|<|=)(-?[0-9.]+)(ns|us|µs|ms|s)?$/;

/** The tests of a query, all of which must hold; empty where it is; a sentence where it cannot be understood. */
export function parseQuery(store: Store, query: string): Test[] | string {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== '');
  const tests: Test[] = [];
  for (const word of words) {
    const test = testOf(store, word);
    if (typeof test === 'string') return test;
    tests.push(test);
  }
  return tests;
}

/** Rows that match, in order of time; null without tests. */
export function search(store: Store, tests: readonly Test[]): Int32Array | null {
  if (tests.length === 0) return null;
  const found: number[] = [];
  for (let row = 0; row < store.rows; row++) if (tests.every((test) => test(row))) found.push(row);
  return Int32Array.from(found);
}

function testOf(store: Store, word: string): Test | string {
  const comparison = kComparison.exec(word);
  if (comparison !== null) return comparisonTest(store, comparison);
  const like = /^([a-z_]+)([<>]=?|=)(.*)$/.exec(word);
  if (like !== null) return `${like[3] === '' ? 'nothing' : `"${like[3]}"`} is no number to compare ${like[1]} with: say ${like[1]}${like[2]}100 or duration>100us`;
  const colon = /^([a-z_]+):(.*)$/.exec(word);
  if (colon === null) return anywhere(store, word);
  const [, field, value] = colon;
  if (value === '') return `${field}: of what? For example ${field}:${kExamples[field] ?? '1'}`;
  return fieldTest(store, field, value) ?? noField(store, field);
}

function comparisonTest(store: Store, [, field, operator, digits, unit]: RegExpExecArray): Test | string {
  const value = Number(digits) * (unit === undefined ? 1 : kTimeUnits[unit]);
  const get = numberOf(store, field);
  if (get === null) return noField(store, field);
  return Number.isFinite(value) ? compare(get, operator, value) : `"${digits}" is no number`;
}

const kFields = ['type', 'state', 'host', 'pid', 'thread', 'comm', 'duration'];
const kExamples: Readonly<Record<string, string>> = { type: 'coll', state: 'wait', host: 'node0', thread: 'progress', comm: 'dp0' };

function noField(store: Store, field: string): string {
  const known = [...kFields, ...[...store.bundle.spans.columns.keys()].filter((name) => !kNoFields.has(name))];
  return `there is no field ${field} in this recording; there are ${known.join(', ')}`;
}
const kNoFields = new Set(['parent_row', 'context', 'process', 'thread', 'type', 'duration', 'start']);

function compare(get: (row: number) => number, operator: string, value: number): Test {
  switch (operator) {
    case '>':
      return (row) => get(row) > value;
    case '<':
      return (row) => get(row) < value;
    case '>=':
      return (row) => get(row) >= value;
    case '<=':
      return (row) => get(row) <= value;
    default:
      return (row) => get(row) === value;
  }
}

function numberOf(store: Store, field: string): ((row: number) => number) | null {
  if (field === 'duration' || field === 'dur') return (row) => store.duration(row);
  const column = store.column(field);
  return column === undefined || column.text ? null : (row) => column.get(row);
}

/** Rows whose text in any of these columns contains the word: the texts are searched, not the rows. */
function textTest(store: Store, names: string[], word: string): Test {
  const hit = Uint8Array.from(store.bundle.strings, (text) => Number(text.toLowerCase().includes(word)));
  const columns = names.flatMap((name) => {
    const column = store.column(name);
    return column?.text ? [column.integers(-1)] : [];
  });
  return (row) => columns.some((column) => hit[column[row]] === 1);
}

function typeTest(store: Store, word: string): Test {
  const hit = new Uint8Array(256);
  for (const kind of kKinds) if (kind.name.toLowerCase().includes(word)) hit[kind.type] = 1;
  const unknown = hit[kindOf(255).type];
  return (row) => hit[store.type[row]] === 1 || (unknown === 1 && kindOf(store.type[row]).type === 255);
}

/** By index into a short list (threads, contexts, processes): the list is searched once. */
function listTest<T>(of: Int32Array, list: readonly T[], matches: (item: T) => boolean): Test {
  const hit = Uint8Array.from(list, (item) => Number(matches(item)));
  return (row) => of[row] >= 0 && hit[of[row]] === 1;
}

function stateTest(store: Store, word: string): Test {
  const hit = new Set<number>();
  for (let state = 0; state < 64; state++) if (stateName(state).toLowerCase().includes(word)) hit.add(state);
  if (hit.size === 0) return () => false;
  return (row) => listOf(store.states, row).some((state) => hit.has(store.stateNumber[state]));
}

function fieldTest(store: Store, field: string, value: string): Test | null {
  const { processes, threads, contexts } = store.bundle;
  const has = (text: string): boolean => text.toLowerCase().includes(value);
  if (field === 'type') return typeTest(store, value);
  if (field === 'state') return stateTest(store, value);
  if (field === 'host') return listTest(store.process, processes, (process) => has(process.host));
  if (field === 'pid') return listTest(store.process, processes, (process) => String(process.pid) === value);
  if (field === 'thread') return listTest(store.thread, threads, (one) => has(one.name) || String(one.tid) === value);
  if (field === 'communicator' || field === 'comm') {
    return listTest(store.context, contexts, (context) => has(context.communicator) || has(context.name));
  }
  const column = store.column(field);
  if (column === undefined) return null;
  return column.text ? textTest(store, [field], value) : (row) => String(column.exact(row) ?? '') === value;
}

function anywhere(store: Store, word: string): Test {
  const { contexts, threads } = store.bundle;
  const texts = [...store.bundle.spans.columns.values()].filter((column) => column.text).map((column) => column.name);
  const tests = [
    typeTest(store, word),
    textTest(store, texts, word),
    stateTest(store, word),
    listTest(store.context, contexts, (one) => `${one.communicator} ${one.name}`.toLowerCase().includes(word)),
    listTest(store.thread, threads, (thread) => thread.name.toLowerCase().includes(word)),
  ];
  if (/^(0x[0-9a-f]+|[0-9]+)$/.test(word)) tests.push(numberTest(store, BigInt(word)));
  return (row) => tests.some((test) => test(row));
}

const kNotSearched = new Set(['start', 'duration', 'parent_row', 'process', 'thread', 'context', 'type', 'detail']);

/** Any field that people look for by number: ids, counts, sequence numbers, peers. */
function numberTest(store: Store, wanted: bigint): Test {
  const near = Number(wanted);
  const columns = [...store.bundle.spans.columns.values()].filter((one) => !one.text && !kNotSearched.has(one.name));
  return (row) => columns.some((column) => column.get(row) === near && column.exact(row) === wanted);
}

/** "0-3,8" as a test of ranks; null when it says nothing, a sentence when it cannot be understood. */
export function parseRanks(text: string): ((rank: number) => boolean) | null | string {
  const parts = text.split(',').map((part) => part.trim()).filter((part) => part !== '');
  if (parts.length === 0) return null;
  const ranges: [number, number][] = [];
  for (const part of parts) {
    const match = /^(\d{1,9})(?:\s*-\s*(\d{1,9}))?$/.exec(part);
    if (match === null) return `"${part}" is no rank and no range of ranks: say 0-3,8`;
    if (match[2] !== undefined && Number(match[2]) < Number(match[1])) return `${part}: from the lower to the higher rank, say ${match[2]}-${match[1]}`;
    ranges.push([Number(match[1]), Number(match[2] ?? match[1])]);
  }
  return (rank) => ranges.some(([low, high]) => rank >= low && rank <= high);
}
