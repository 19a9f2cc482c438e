import { describe, expect, it } from 'vitest';
import { openPayload } from '../src/bundle';
import { bytes, shortProgram } from '../src/format';
import { doubtOf } from '../src/doubt';
import { kCertain, kClose, kHandedOver, kMissing, kStartup, Lateness } from '../src/lateness';
import { busFactor, operationOf, typeBytes, type Operation } from '../src/operation';
import { proxyWaits } from '../src/proxies';
import { suspicions } from '../src/quality';
import { relativesOf } from '../src/relations';
import { Replays } from '../src/replays';
import { Session } from '../src/session';
import { Store } from '../src/store';
import { payloadOf, type Contents, type Event } from './make_bundle';

const kStrings = ['', 'AllReduce', 'ncclFloat32', 'RING'];

/**
 * Ranks in processes of their own on one host; `arrivals` by collective and rank, each lasting until `ends` of the collective. The
 * first one's number is `first`: from 1 on, the recording begins when the ranks had met already.
 */
function job(arrivals: number[][], ends: (at: number, rank: number) => number, ranks = 2, first = 1): Contents {
  const events: Event[] = arrivals.flatMap((row, at) =>
    row.map((start, rank) => ({
      type: 1, start, stop: ends(at, rank), process: rank, context: rank, thread: rank, rank, function: 1, sequence: first + at, id: 1 + at * ranks + rank,
      count: 1024, data_type: 2, algorithm: 3, channel: 2,
    })),
  );
  const each = Array.from({ length: ranks }, (_, rank) => rank);
  return {
    events: events.sort((a, b) => a.start - b.start),
    strings: kStrings,
    processes: each.map((rank) => ({ host: 'h', pid: rank, program: '', error: '', boot: 'b007', error_ns: 0 })),
    threads: each.map((rank) => ({ process: rank, tid: rank, name: 'main' })),
    contexts: each.map((rank) => ({ process: rank, communicator: '0xabc', name: '', rank, ranks })),
  };
}

const open = (contents: Contents): { store: Store; lateness: Lateness } => {
  const store = new Store(openPayload(payloadOf(contents)));
  return { store, lateness: new Lateness(store) };
};

describe('lateness', () => {
  const arrivals = [[0, 200_000], [300_000, 300_010], [600_000, 500_000]];
  const last = (at: number): number => Math.max(...arrivals[at]);

  it('is how long the first waited for the last, who is named', () => {
    const { store, lateness } = open(job(arrivals, (at) => last(at) + 4096));
    const worst = lateness.worst(10, () => true);
    expect(worst.map((one) => lateness.late(one))).toEqual([200_000, 100_000, 10]);
    expect(worst.map((one) => store.rank[lateness.lastRow[one]])).toEqual([1, 0, 1]);
    expect(lateness.worst(2, (row) => store.rank[row] === 1).map((one) => lateness.late(one))).toEqual([200_000, 10]);
    expect(lateness.lanes.length).toBe(1);
    expect([...lateness.lanes[0].at]).toEqual([200_000, 300_010, 600_000]);
  });

  it('divides a bar into waiting and moving where the bar ends with the operation', () => {
    const { store, lateness } = open(job(arrivals, (at) => last(at) + 4096));
    expect(lateness.waitEnd(0)).toBe(200_000);
    expect(lateness.waitEnd(lateness.lastRow[store.collectives.of[0]])).toBeNaN();
    const operation = operationOf(store, lateness, new Replays(store), 0)!;
    expect(operation).toMatchObject({ bytes: 4096, elements: '1024 × float32', how: 'RING, 2 channels', waited: 200_000, transfer: 4096 });
    expect(operation.bandwidth).toBeCloseTo(1);
  });

  it('says nothing of waiting and bandwidth where bars end when the operation was handed over', () => {
    const { store, lateness } = open(job(arrivals, (at, rank) => arrivals[at][rank] + 500));
    expect(lateness.late(0)).toBe(200_000);
    expect(lateness.waitEnd(0)).toBeNaN();
    expect(operationOf(store, lateness, new Replays(store), 0)!.bandwidth).toBeNaN();
  });

  it('goes by kernels where there are any', () => {
    const contents = job([[0, 10]], (_, rank) => 500 + rank);
    const kernel = { type: 6, channel: 0, clock_error: 0 };
    contents.events.push({ ...kernel, start: 1000, stop: 9000, process: 0, context: 0, parent: 0 });
    contents.events.push({ ...kernel, start: 5000, stop: 9096, process: 1, context: 1, parent: 1 });
    const { store, lateness } = open(contents);
    expect(lateness.late(0)).toBe(4000);
    expect([0, 1, 2, 3].map((row) => lateness.waitEnd(row))).toEqual([NaN, NaN, 5000, NaN]);
    expect(operationOf(store, lateness, new Replays(store), 1)!.transfer).toBe(4096);
    expect(lateness.doubts[0]).toBe(kCertain);
  });

  it('is not made up of one rank', () => {
    const { lateness } = open(job([[0], [100]], (at) => 100 * at + 50, 1));
    expect(lateness.worst(10, () => true)).toEqual([]);
    expect(lateness.lanes).toEqual([]);
  });

  it('of a rank that was not recorded gives no bandwidth', () => {
    const contents = job(arrivals, (at) => last(at) + 4096);
    for (const context of contents.contexts as { ranks: number }[]) context.ranks = 3;
    const { store, lateness } = open(contents);
    expect(operationOf(store, lateness, new Replays(store), 0)!.bandwidth).toBeNaN();
  });
});

describe('the last rank is not named', () => {
  const arrivals = [[0, 200_000], [300_000, 300_010], [600_000, 500_000]];
  const ends = (at: number): number => Math.max(...arrivals[at]) + 4096;
  /** The doubts about each collective, and the reason for the first as the page says it. */
  function doubts(contents: Contents): [number[], string] {
    const { store, lateness } = open(contents);
    return [[...lateness.doubts], doubtOf(store, lateness, 0)];
  }

  it('unless another came less than 1 µs before it', () => {
    expect(doubts(job(arrivals, ends))).toEqual([[kCertain, kClose, kCertain], '']);
  });

  it('at start-up, which is listed apart', () => {
    const contents = job(arrivals, ends, 2, 0);
    expect(doubts(contents)[0]).toEqual([kStartup, kClose, kCertain]);
    expect(doubts(contents)[1]).toContain('had not met before');
    const { lateness } = open(contents);
    expect(lateness.worst(10, () => true).map((one) => lateness.late(one))).toEqual([100_000, 10]);
    expect(lateness.worst(10, () => true, true).map((one) => lateness.late(one))).toEqual([200_000]);
    expect(lateness.lanes[0].most).toBe(100_000);
  });

  it('at start-up of ranks that had not met, and these alone', () => {
    // A second communicator of the same processes begins when they are all there.
    const contents = job(arrivals, ends, 2, 0);
    const contexts = contents.contexts as { communicator: string }[];
    contexts.push(...contexts.map((context) => ({ ...context, communicator: '0xdef' })));
    const later = contents.events.slice(2, 4).map((one) => ({ ...one, start: one.start + 10_000_000, stop: one.stop! + 10_100_000, context: one.rank! + 2, sequence: 0 }));
    later[0].start -= 100_000;
    const { store, lateness } = open({ ...contents, events: [...contents.events, ...later] });
    expect(store.communicators.length).toBe(2);
    expect([...lateness.doubts]).toEqual([kStartup, kClose, kCertain, kCertain]);
  });

  it('where a rank of the communicator is not recorded', () => {
    const contents = job(arrivals, ends);
    for (const context of contents.contexts as { ranks: number }[]) context.ranks = 4;
    const [found, words] = doubts(contents);
    expect(found).toEqual([kMissing, kMissing, kMissing]);
    expect(words).toBe('ranks 2 and 3 of 0xabc are not recorded: another may have come later');
    expect(suspicions(open(contents).store)).toEqual(['ranks 2 and 3 of 0xabc are not recorded']);
  });

  it('where a rank has not come, or its part was lost', () => {
    const contents = job([[0, 200_000, 5], [300_000, 400_000, 5]], (at) => [204_096, 404_096][at], 3);
    contents.events = contents.events.filter((one) => one.rank !== 2 || one.sequence !== 1);
    const [found, words] = doubts(contents);
    expect(found).toEqual([kMissing, kCertain]);
    expect(words).toContain('2 of 3 ranks have a recording of this operation');
  });

  it('where only the handing over is recorded', () => {
    const [found, words] = doubts(job(arrivals, (at, rank) => arrivals[at][rank] + 500));
    expect(found).toEqual([kHandedOver, kHandedOver, kHandedOver]);
    expect(words).toContain('handed over');
  });

  it('where the clocks of hosts can be wrong by as much', () => {
    const contents = job(arrivals, ends);
    const processes = contents.processes as { boot: string; error_ns: number }[];
    [processes[1].boot, processes[1].error_ns] = ['b008', 150_000];
    expect(doubts(contents)[0]).toEqual([kCertain, kClose, kClose]);
    processes[1].error_ns = 250_000;
    expect(doubts(contents)).toEqual([[kClose, kClose, kClose], 'the clocks can be 250.0 µs apart: another may have come last']);
    processes[1].error_ns = -1;
    expect(doubts(contents)[1]).toContain('nothing links the clocks');
    processes[1].boot = 'b007';
    expect(doubts(contents)[0]).toEqual([kCertain, kClose, kCertain]);
  });

  it('where the clocks of GPUs can, which are known better among each other', () => {
    const contents = job([[0, 10]], (_, rank) => 500 + rank);
    const kernel = { type: 6, stop: 90_000, channel: 0, clock_error: 30_000 };
    contents.events.push({ ...kernel, start: 1000, process: 0, context: 0, parent: 0 }, { ...kernel, start: 21_000, process: 1, context: 1, parent: 1 });
    expect(doubts(contents)).toEqual([[kClose], 'the clocks can be 60.00 µs apart: another may have come last']);
    for (const event of contents.events.slice(2)) event.gpu_error = 2000;
    expect(doubts(contents)[0]).toEqual([kCertain]);
  });

  it('by kernels that only some ranks have', () => {
    const contents = job([[0, 10_000]], (_, rank) => 10_000 * rank + 500);
    contents.events.push({ type: 6, start: 60_000, stop: 90_000, process: 0, context: 0, parent: 0, channel: 0 });
    const { lateness } = open(contents);
    expect([lateness.late(0), lateness.doubts[0], lateness.waitEnd(2)]).toEqual([10_000, kHandedOver, NaN]);
  });
});

describe('an operation that a link names', () => {
  it('is pinned at its last rank, and all of it is in view', () => {
    const session = new Session(open(job([[0, 200_000], [300_000, 300_010]], (at) => 250_000 + 200_000 * at)).store);
    session.apply({ operation: { communicator: '0xABC', name: 'allreduce', sequence: 2 } });
    expect(session.store.start[session.selection]).toBe(300_010);
    expect([session.from < 300_000, session.to > 450_000]).toEqual([true, true]);
    session.apply({ operation: { communicator: '0xabc', name: 'AllReduce', sequence: 9 } });
    expect(session.store.start[session.selection]).toBe(300_010);
  });
});

describe('an operation', () => {
  const of = (contents: Contents, row: number): Operation | null => {
    const { store, lateness } = open(contents);
    return operationOf(store, lateness, new Replays(store), row);
  };

  it('that is known by its proxies has bounds, and begins no earlier than the one before ended', () => {
    // Handed over at 0 and 10, done at 5000; the second handed over at 100 queued until then, and was done at 9096.
    const contents = job([[0, 10], [100, 110]], (at, rank) => 50 + 100 * at + 10 * rank);
    const ends = [5000, 5000, 9096, 9000];
    const proxy = { type: 3, channel: 0, peer: 0 };
    contents.events.push(...ends.map((stop, parent) => ({ ...proxy, start: 120 + parent, stop, process: parent % 2, context: parent % 2, thread: parent % 2, parent })));
    expect(of(contents, 0)).toMatchObject({ bound: true, transfer: 4990 });
    expect(of(contents, 2)).toMatchObject({ bound: true, transfer: 4096 });
    expect(of(contents, 2)!.bandwidth).toBeCloseTo(1);
    // Of one group they may run beside each other.
    for (const event of contents.events.slice(0, 4)) event.group = 77;
    expect(of(contents, 2)!.transfer).toBe(9096 - 110);
    delete contents.events[7].stop;
    expect(of(contents, 2)!.transfer).toBeNaN();
  });

  it('that is a send has its bytes, and bounds', () => {
    const contents = job([[0, 200_000]], () => 204_096);
    const send = { type: 2, start: 300_000, stop: 300_100, process: 0, context: 0, rank: 0, thread: 0, count: 1024, data_type: 2, peer: 1, function: 4 };
    contents.strings = [...kStrings, 'Send'];
    contents.events.push(send, { type: 3, start: 300_050, stop: 302_048, process: 0, context: 0, thread: 0, parent: 2, peer: 1 });
    expect(of(contents, 2)).toMatchObject({ bytes: 4096, transfer: 100, bound: true, waitedFor: -1 });
    // Where a rank's operations are only handed over, the proxy says when it was done.
    contents.events.splice(0, 2);
    contents.events[1].parent = 0;
    expect(of(contents, 0)).toMatchObject({ bytes: 4096, transfer: 2048, bandwidth: 2 });
  });

  it('that a graph replayed is joined by the number of its first block', () => {
    const call = { type: 9, start: 0, stop: 10, function: 1, count: 1024, data_type: 2, id: 1 };
    const kernel = { type: 6, channel: 0 };
    const on = (rank: number): object => ({ process: rank, context: rank, rank, thread: rank });
    const events: Event[] = [
      { ...call, ...on(0) }, { ...call, ...on(1) },
      { ...kernel, start: 100, stop: 5296, parent: 0, ...on(0) }, { ...kernel, start: 100, stop: 5296, parent: 0, ...on(0), channel: 1 },
      { ...kernel, start: 1200, stop: 5000, parent: 1, ...on(1) },
      { ...kernel, start: 6000, stop: 6500, parent: 0, ...on(0) },
    ];
    const states = [2, 3, 4, 5].map((span, at) => ({ span, time: 7000, state: 1000, argument: [7, 7, 7, 8][at] }));
    const contents = { ...job([], () => 0), events, states };
    expect(of(contents, 2)).toMatchObject({ bytes: 4096, waited: 1100, waitedFor: 4, transfer: 4096, bound: false });
    expect(new Replays(open(contents).store).of(2)).toEqual([2, 4]);
    expect(of(contents, 2)!.bandwidth).toBeCloseTo(1);
    expect(of(contents, 3)).toBe(null);
    expect([of(contents, 5)!.transfer, of(contents, 5)!.waitedFor]).toEqual([NaN, -1]);
    expect(of(contents, 0)).toBe(null);
    // Nobody is named where the clocks can be wrong by as much.
    for (const event of contents.events.slice(2)) event.clock_error = 600;
    expect(of(contents, 2)!.waitedFor).toBe(-1);
  });

  it('that a graph replayed names nobody for less than 1 µs, nor at the start-up of ranks', () => {
    const on = (rank: number): object => ({ process: rank, context: rank, rank, thread: rank });
    const replayed = (apart: number, number: number, first: Event[] = []): number | undefined => {
      const call = { type: 9, start: 10_000, stop: 10_010, function: 1, count: 1024, data_type: 2, id: 1 };
      const kernel = { type: 6, channel: 0, stop: 90_000, clock_error: 0 };
      const at = first.length;
      const events: Event[] = [
        ...first, { ...call, ...on(0) }, { ...call, ...on(1) },
        { ...kernel, start: 20_000, parent: at, ...on(0) }, { ...kernel, start: 20_000 + apart, parent: at + 1, ...on(1) },
      ];
      const states = [at + 2, at + 3].map((span) => ({ span, time: 90_000, state: 1000, argument: number }));
      const found = of({ ...job([], () => 0), events, states }, at + 2)!.waitedFor;
      return found < 0 ? found : found - at;
    };
    expect([replayed(900, 7), replayed(1100, 7), replayed(1100, 1)]).toEqual([-1, 3, -1]);
    // They had met in an operation that no graph replayed.
    expect(replayed(1100, 1, job([[0, 10]], () => 500, 2, 0).events)).toBe(3);
  });
});

describe('proxies', () => {
  it('wait for the rank at the other side, for data or for room', () => {
    const contents = job([[0, 10]], () => 90);
    const proxy = { type: 3, start: 20, stop: 5000, process: 0, context: 0, thread: 0, parent: 0 };
    const step = { type: 4, process: 0, context: 0, thread: 0 };
    contents.events.push(
      { ...proxy, peer: 1 }, { ...proxy, start: 21, peer: 3 },
      { ...step, start: 30, stop: 1000, parent: 2 }, { ...step, start: 31, stop: 2000, parent: 2 }, { ...step, start: 32, stop: 3000, parent: 3 },
    );
    contents.states = [
      { span: 4, time: 100, state: 10 }, { span: 5, time: 150, state: 10 }, { span: 4, time: 600, state: 12 }, { span: 6, time: 700, state: 20 },
      { span: 6, time: 900, state: 9 },
    ];
    const { store } = open(contents);
    expect(proxyWaits(store, [0, 1])).toMatchObject([
      { rank: 0, peer: 1, what: 'data', ns: 500 + 1850, chunks: 2, row: 2 }, { rank: 0, peer: 3, what: 'room', ns: 200, chunks: 1, row: 3 },
    ]);
    expect(proxyWaits(store, [1])).toEqual([]);
  });
});

describe('relatives', () => {
  it('of calls and groups are those of the other ranks', () => {
    const events: Event[] = [0, 1].flatMap((rank) => {
      const on = { process: rank, context: rank, rank, thread: rank };
      const at = 10 * rank;
      return [
        { type: 8, start: at, stop: at + 9, id: 1, ...on },
        { type: 0, start: at + 1, stop: at + 8, id: 2, ...on },
        { type: 1, start: at + 2, stop: at + 7, id: 3, parent: 3 * rank, group: 2, function: 1, sequence: 0, ...on },
      ];
    });
    const { store } = open({ ...job([], () => 0), events });
    expect(relativesOf(store, 0).peers).toEqual([0, 3]);
    expect(relativesOf(store, 4).peers).toEqual([1, 4]);
    expect(relativesOf(store, 4).descendants).toEqual([5]);
    expect(relativesOf(store, 2).peers).toEqual([2, 5]);
  });
});

describe('words', () => {
  it('know types and factors as nccl-tests does', () => {
    expect(['ncclFloat32', 'bfloat16', 'ncclInt8', 'float8e4m3', 'ncclDouble', 'what'].map(typeBytes)).toEqual([4, 2, 1, 1, 8, 0]);
    expect(['AllReduce', 'ncclAllGather', 'reduce_scatter', 'Broadcast'].map((name) => busFactor(name, 4))).toEqual([1.5, 0.75, 0.75, 1]);
    expect([0, 512, 1536, 4096, 64 << 20, NaN].map(bytes)).toEqual(['0 B', '512 B', '1.50 KB', '4 KB', '64 MB', '']);
  });

  it('call a program by its script', () => {
    const named = {
      '/v/bin/python3.11 -u /home/me/train.py --lr 3': 'train.py', 'python -m torch.distributed.run x': 'torch.distributed.run',
      '/usr/bin/python3 -X dev -W ignore a/b.py': 'b.py', './all_reduce_perf -b 8': 'all_reduce_perf', 'python -c print()': 'python', '': '',
    };
    for (const [command, name] of Object.entries(named)) expect(shortProgram(command)).toBe(name);
  });
});
