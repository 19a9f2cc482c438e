// Everything that was recorded of one event, as lines of a name and a value. All of it is text from a recording: whoever
// shows it uses textContent.

import { kColl, kindOf, stateName } from './events';
import { duration, grouped, moment, shortProgram } from './format';
import { listOf, type Store } from './store';

export interface Field {
  readonly name: string;
  readonly value: string;
}

const kShownElsewhere = new Set([
  'type', 'process', 'thread', 'context', 'rank', 'start', 'duration', 'parent_row', 'id', 'parent', 'function',
]);
const kHexadecimal = new Set(['stream', 'user_tag', 'group', 'send_buffer', 'receive_buffer']);
// Of kernels that lie on the GPU's clock: when the host saw them.
const kMoments = new Map([['seen_start', 'start seen by host'], ['seen_stop', 'stop seen by host']]);
const kClockErrors = new Map([['clock_error', 'GPU clock known to'], ['gpu_error', 'against other GPUs']]);
// What `detail`, `peer` and `channel` mean depends on the type.
const kDetailOf: Readonly<Record<number, string>> = { 3: 'steps', 4: 'step', 8: 'depth' };

function nameFor(column: string, type: number): string {
  if (column === 'detail') return kDetailOf[type] ?? 'detail';
  if (column === 'peer' && (type === kColl || type === 9 || type === 12)) return 'root';
  if (column === 'channel' && (type === kColl || type === 2)) return 'channels';
  return column.replace(/_/g, ' ');
}

/** What a bar is called: its function, else its type. */
export function titleOf(store: Store, row: number): string {
  const name = store.function[row] > 0 ? store.text(store.function[row]) : '';
  const kind = kindOf(store.type[row]).name;
  const sequence = store.sequence[row] >= 0 ? ` #${store.sequence[row]}` : '';
  if (name !== '') return `${name}${sequence}`;
  const step = store.type[row] === 4 ? (store.column('detail')?.get(row) ?? NaN) : NaN;
  if (!Number.isNaN(step)) return `step ${step}`;
  return `${kind}${store.channel[row] >= 0 ? ` ${store.channel[row]}` : ''}${sequence}`;
}

function hexadecimal(value: bigint | null | undefined): string {
  return value === null || value === undefined ? '' : `0x${value.toString(16)}`;
}

function placeFields(store: Store, row: number): Field[] {
  const { processes, threads, contexts } = store.bundle;
  const process = processes[store.process[row]];
  const thread = threads[store.thread[row]];
  const context = contexts[store.context[row]];
  const found: Field[] = [];
  const add = (name: string, value: string): void => void found.push({ name, value });
  if (context !== undefined) {
    add('communicator', [context.name, context.communicator].filter((part) => part !== '').join(' '));
    add('rank', context.ranks > 0 ? `${context.rank} of ${context.ranks}` : `${context.rank}`);
  }
  if (store.rank[row] >= 0 && store.rank[row] !== context?.rank) add('rank of the event', `${store.rank[row]}`);
  if (thread !== undefined) add('thread', `${thread.name ? `${thread.name}, ` : ''}${thread.tid}`);
  if (process !== undefined) {
    add('process', `${process.pid} on ${process.host}`);
    add('program', shortProgram(process.program));
    if (shortProgram(process.program) !== process.program) add('command line', process.program);
  }
  return found;
}

function timeFields(store: Store, row: number): Field[] {
  const found: Field[] = [{ name: 'start', value: moment(store.start[row]) }];
  if (store.open[row]) {
    found.push({ name: 'stop', value: 'never stopped' });
    return found;
  }
  const length = store.column('duration')?.get(row) ?? 0;
  found.push({ name: 'stop', value: moment(store.start[row] + length) });
  found.push({ name: 'duration', value: `${duration(length)}${length >= 1000 ? ` (${grouped(length)} ns)` : ''}` });
  if (length < 0) found.push({ name: 'note', value: 'stops before it starts: a suspect stamp' });
  return found;
}

export function fieldsOf(store: Store, row: number): Field[] {
  const type = store.type[row];
  const kind = kindOf(type);
  const found: Field[] = [{ name: 'type', value: kind.type === 255 && type !== 255 ? `Unknown (${type})` : kind.name }];
  if (store.function[row] > 0) found.push({ name: 'function', value: store.text(store.function[row]) });
  found.push(...timeFields(store, row), ...placeFields(store, row));
  for (const column of store.bundle.spans.columns.values()) {
    if (kShownElsewhere.has(column.name)) continue;
    const value = column.exact(row);
    if (value === null || (column.text && value === 0n)) continue;
    if (kHexadecimal.has(column.name) && value === 0n) continue;
    if (kMoments.has(column.name)) {
      found.push({ name: kMoments.get(column.name)!, value: moment(Number(value)) });
      continue;
    }
    if (kClockErrors.has(column.name)) {
      found.push({ name: kClockErrors.get(column.name)!, value: `± ${duration(Number(value)) || '0 ns'}` });
      continue;
    }
    const shown = column.text ? store.text(Number(value)) : kHexadecimal.has(column.name) ? hexadecimal(value) : grouped(value);
    found.push({ name: nameFor(column.name, type), value: shown });
  }
  const gpuStart = store.column('gpu_start')?.exact(row) ?? null;
  const gpuStop = store.column('gpu_stop')?.exact(row) ?? null;
  if (gpuStart !== null && gpuStop !== null) found.push({ name: 'time on the GPU', value: duration(Number(gpuStop - gpuStart)) });
  found.push({ name: 'id', value: hexadecimal(store.column('id')?.exact(row)) });
  const parent = store.column('parent')?.exact(row) ?? 0n;
  if (parent !== 0n) {
    const missing = store.parent[row] < 0 ? ' (not in this recording)' : '';
    found.push({ name: 'parent', value: `${hexadecimal(parent)}${missing}` });
  }
  return found;
}

export interface StateLine {
  readonly name: string;
  readonly after: string;
  readonly extra: string;
}

export function statesOf(store: Store, row: number, most: number): StateLine[] {
  const counts = store.bundle.states.columns.get('count');
  const values = store.bundle.states.columns.get('argument');
  return Array.from(listOf(store.states, row).subarray(0, most), (state) => {
    const times = counts?.get(state) ?? 1;
    const value = values?.exact(state) ?? null;
    const parts = [times > 1 ? `${grouped(times)} times` : '', value === null ? '' : grouped(value)];
    return {
      name: stateName(store.stateNumber[state]),
      after: `+${duration(store.stateTime[state] - store.start[row]) || '0 ns'}`,
      extra: parts.filter((part) => part !== '').join(', '),
    };
  });
}
