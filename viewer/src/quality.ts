// What was lost or looks wrong in the recording, and the processes that it is of.

import { make } from './dom';
import { gap } from './doubt';
import { duration, grouped } from './format';
import type { Store } from './store';

const kWords: readonly (readonly [string, string])[] = [
  ['dropped', 'events dropped'],
  ['overwritten', 'events overwritten'],
  ['unmatched_starts', 'events never stopped'],
  ['unmatched_stops', 'stops without a start'],
  ['duplicate_stops', 'stops twice'],
  ['damaged_segments', 'damaged segments'],
  ['suspect_stamps', 'suspect time stamps'],
];

function count(value: unknown): number {
  return typeof value === 'number' && value > 0 ? value : 0;
}

/** In words, the worst first; empty where nothing is wrong. */
export function suspicions(store: Store): string[] {
  const { quality, processes } = store.bundle;
  const found = store.communicators.map(gap).filter((text) => text !== '').slice(0, 100);
  found.push(...kWords.flatMap(([name, words]) => (count(quality[name]) > 0 ? [`${grouped(count(quality[name]))} ${words}`] : [])));
  for (const process of processes) if (process.error !== '') found.push(`process ${process.pid}: ${process.error}`);
  const notes = Array.isArray(quality['notes']) ? quality['notes'] : [];
  return [...found, ...notes.filter((note): note is string => typeof note === 'string').slice(0, 100)];
}

function text(value: unknown): string {
  if (typeof value === 'number') return grouped(Math.round(value * 1000) / 1000);
  return typeof value === 'string' ? value : typeof value === 'boolean' ? (value ? 'yes' : 'no') : '';
}

function time(value: unknown): string {
  return typeof value === 'number' ? duration(value) || '0 ns' : text(value);
}

/** Whose library the process has, and its version. */
export function library(fields: Readonly<Record<string, unknown>>): string {
  const ours = fields['stretto'];
  if (typeof ours === 'string' && ours !== '') return `Stretto ${ours}`;
  const value = fields['nccl_version'];
  if (typeof value !== 'number' || value <= 0) return '';
  return `NCCL ${Math.floor(value / 10000)}.${Math.floor(value / 100) % 100}.${value % 100}`;
}

type Show = (value: unknown, fields: Readonly<Record<string, unknown>>) => string;
const kColumns: readonly (readonly [string, string, Show])[] = [
  ['host', 'host', text],
  ['pid', 'pid', (value) => String(value)],
  ['program', 'program', text],
  ['nccl_version', 'library', (_, fields) => library(fields)],
  ['abi', 'plugin ABI', text],
  ['mask', 'mask', text],
  ['offset_ns', 'clock offset', time],
  ['error_ns', '± error', time],
  ['drift_ppm', 'drift ppm', text],
  ['dropped', 'dropped', text],
  ['unmatched', 'unmatched', text],
  ['self_ns', 'per callback', time],
  ['closed', 'closed in order', text],
  ['error', 'error', text],
];

export function showQuality(store: Store, box: HTMLElement): void {
  const found = suspicions(store);
  const list = make('ul');
  for (const line of found) list.append(make('li', {}, line));
  const table = make('table');
  table.append(make('tr', {}, ...kColumns.map(([, title]) => make('th', {}, title))));
  for (const process of store.bundle.processes.slice(0, 1000)) {
    table.append(make('tr', {}, ...kColumns.map(([name, , show]) => make('td', {}, show(process.fields[name], process.fields)))));
  }
  const began = new Date(Number(store.bundle.originRealtimeNs / 1000000n));
  const when = Number.isNaN(began.getTime()) ? 'not known' : began.toISOString();
  box.replaceChildren(
    make('p', {}, `Time 0 is ${when}. Times are on the clock of the first process.`),
    found.length === 0 ? make('p', {}, 'Nothing was lost, and nothing looks wrong.') : list,
    make('div', { class: 'scroll' }, table),
  );
}
