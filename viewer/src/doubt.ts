// Why nobody can be named for a collective, in words.

import { duration } from './format';
import { kClose, kHandedOver, kMissing, kStartup, type Lateness } from './lateness';
import { listOf, type Communicator, type Store } from './store';

const kMostNamed = 8;

/** "rank 3", "ranks 1, 2 and 5", of many only some. */
export function namesOf(ranks: readonly number[]): string {
  const some = ranks.slice(0, kMostNamed).map(String);
  if (ranks.length > kMostNamed) return `ranks ${some.join(', ')} and others`;
  return some.length === 1 ? `rank ${some[0]}` : `ranks ${some.slice(0, -1).join(', ')} and ${some[some.length - 1]}`;
}

/** What is not recorded of a communicator; empty where all of it is. */
export function gap({ name, id, ranks, recorded, complete, missing }: Communicator): string {
  if (complete) return '';
  const label = name === '' ? id : name;
  if (ranks < 1) return `how many ranks ${label} has is not recorded`;
  if (missing.length === 0) return `${recorded} ranks of ${label} are recorded, which has ${ranks}`;
  return `${namesOf(missing)} of ${label} ${missing.length === 1 ? 'is' : 'are'} not recorded`;
}

/** Why the last rank of a collective is not named for certain; empty where it is. */
export function doubtOf(store: Store, lateness: Lateness, collective: number): string {
  const row = lateness.lastRow[collective];
  if (row < 0) return '';
  const communicator = store.communicators[store.communicator(row)];
  const error = lateness.errors[collective];
  switch (lateness.doubts[collective]) {
    case kStartup:
      return 'start-up: these ranks had not met before, and processes start at different times';
    case kMissing: {
      const rows = listOf(store.collectives.rows, collective).length;
      return `${gap(communicator) || `${rows} of ${communicator.recorded} ranks have a recording of this operation`}: another may have come later`;
    }
    case kHandedOver:
      return 'only that the operation was handed over is recorded, not whether anybody waited';
    case kClose:
      if (error === Infinity) return 'nothing links the clocks of all ranks: another may have come last';
      return error > 0 ? `the clocks can be ${duration(error)} apart: another may have come last` : 'another rank came less than 1 µs before it';
    default:
      return '';
  }
}
