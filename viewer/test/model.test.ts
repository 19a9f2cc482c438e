import { describe, expect, it } from 'vitest';
import { openPayload } from '../src/bundle';
import { fieldsOf, statesOf, titleOf } from '../src/fields';
import { duration, grouped, moment, tickStep, ticks } from '../src/format';
import { lanesBetween, place, trackAt, tracksBelow } from '../src/geometry';
import { formatPlace, parsePlace, placeFaults } from '../src/hash';
import { kShowAll, layOut, type Filter } from '../src/layout';
import { Lateness } from '../src/lateness';
import { relativesOf } from '../src/relations';
import { parseQuery, parseRanks, search } from '../src/search';
import { Session } from '../src/session';
import { listOf, Store } from '../src/store';
import { payloadOf, randoms, type Contents, type Event } from './make_bundle';

const store = (contents: Contents): Store => new Store(openPayload(payloadOf(contents)));

/** Two ranks; a collective each with its API call, proxy operation and overlapping steps on another thread. */
function twoRanks(): Contents {
  const events: Event[] = [];
  for (let rank = 0; rank < 2; rank++) {
    const [at, process, context] = [1000 * rank, rank, rank];
    const on = (thread: number): Partial<Event> => ({ process, context, rank, thread: 2 * rank + thread });
    events.push({ type: 8, start: at, stop: at + 500, id: 16 * rank + 1, ...on(0) });
    events.push({ type: 9, start: at + 10, stop: at + 60, parent: 0, function: 1, id: 16 * rank + 2, ...on(0) });
    events.push({ type: 1, start: at + 100, stop: at + 200, parent: 1, function: 1, sequence: 5, id: 16 * rank + 3, ...on(0) });
    events.push({ type: 3, start: at + 150, stop: at + 900, parent: 2, id: 16 * rank + 4, ...on(1) });
    events.push({ type: 4, start: at + 160, stop: at + 400, parent: 3, id: 16 * rank + 5, ...on(1) });
    events.push({ type: 4, start: at + 200, stop: at + 500, parent: 3, id: 16 * rank + 6, ...on(1) });
    events.push({ type: 6, start: at + 90, stop: at + 950, parent: 2, channel: 3, id: 16 * rank + 7, ...on(1) });
  }
  const order = events.map((_, index) => index).sort((a, b) => events[a].start - events[b].start);
  const row = new Map(order.map((index, at) => [index, at]));
  const sorted = order.map((index) => {
    const { parent, ...rest } = events[index];
    return parent === undefined ? rest : { ...rest, parent: row.get(parent + (index >= 7 ? 7 : 0))! };
  });
  const context = { process: 0, communicator: '0xabc', name: 'dp0', rank: 0, ranks: 2 };
  return {
    events: sorted,
    states: [{ span: row.get(4)!, time: 170, state: 8 }, { span: row.get(4)!, time: 300, state: 9 }],
    processes: [0, 1].map((rank) => ({ host: 'node0', pid: 100 + rank, program: 'test', error: '' })),
    threads: [0, 1, 2, 3].map((thread) => ({ process: thread >> 1, tid: 50 + thread, name: thread % 2 ? 'progress' : 'main' })),
    contexts: [context, { ...context, process: 1, rank: 1 }],
  };
}

describe('the store', () => {
  const one = store(twoRanks());

  it('joins one collective across ranks by communicator, function and sequence', () => {
    expect(one.collectives.count).toBe(1);
    const rows = Array.from(listOf(one.collectives.rows, 0));
    expect(rows.map((row) => one.rank[row])).toEqual([0, 1]);
  });

  it('does not join other communicators, functions, sequences', () => {
    const same: Event = { type: 1, start: 0, stop: 1, process: 0, thread: 0, context: 0, function: 1, sequence: 1 };
    const contexts = ['0x1', '0x2'].map((communicator) => ({ process: 0, communicator, name: '', rank: 0, ranks: 1 }));
    const events = [same, { ...same, context: 1 }, { ...same, function: 2 }, { ...same, sequence: 2 }];
    const none: Event = { type: 1, start: 0, stop: 1, process: 0, thread: 0, context: 0, function: 1 };
    const made = store({ events: [...events, none], contexts });
    expect(made.collectives.count).toBe(4);
    expect(made.collectives.of[4]).toBe(-1);
  });

  it('takes a number that comes again for another collective', () => {
    const one: Event = { type: 1, start: 0, stop: 1, process: 0, thread: 0, context: 0, function: 1, sequence: 1 };
    const contexts = [0, 1].map((rank) => ({ process: 0, communicator: '0x1', name: '', rank, ranks: 2 }));
    const events = [0, 1, 0, 0, 1].map((context, at) => ({ ...one, context, start: at, stop: at + 1 }));
    const made = store({ events, contexts });
    expect(made.collectives.count).toBe(3);
    const groups = [0, 1, 2].map((number) => Array.from(listOf(made.collectives.rows, number)));
    expect(groups).toEqual([[0, 1], [2, 4], [3]]);
  });

  it('knows children, states and relatives', () => {
    const step = one.type.indexOf(4);
    expect(listOf(one.states, step).length).toBe(2);
    const operation = one.parent[step];
    expect(one.type[operation]).toBe(3);
    expect(listOf(one.children, operation).length).toBe(2);
    const relatives = relativesOf(one, step);
    expect(relatives.ancestors.map((row) => one.type[row])).toEqual([3, 1, 9, 8]);
    expect(relatives.peers.map((row) => one.type[row])).toEqual([1, 1]);
    const top = relativesOf(one, one.type.indexOf(8));
    expect(top.descendants.length).toBe(6);
  });

  it('ends what never stopped at its parent, else with its process', () => {
    const made = store({
      events: [
        { type: 8, start: 0, stop: 100, process: 0, thread: 0, context: 0 },
        { type: 9, start: 10, process: 0, thread: 0, context: 0, parent: 0 },
        { type: 8, start: 50, process: 0, thread: 0, context: 0 },
        { type: 8, start: 90, stop: 400, process: 0, thread: 0, context: 0 },
      ],
    });
    expect(Array.from(made.end)).toEqual([100, 100, 400, 400]);
    expect(Array.from(made.open)).toEqual([0, 1, 1, 0]);
    expect(made.duration(1)).toBeNaN();
  });

  it('walks circles once', () => {
    const same = { type: 8, start: 0, stop: 1, process: 0, thread: 0, context: 0 };
    const made = store({ events: [{ ...same, parent: 1 }, { ...same, parent: 0 }] });
    expect(relativesOf(made, 0).ancestors).toEqual([1]);
    expect(relativesOf(made, 0).descendants).toEqual([1]);
  });
});

describe('lanes', () => {
  const one = store(twoRanks());
  const layout = layOut(one, kShowAll);

  it('lie as host, process, communicator and rank, thread', () => {
    expect(layout.lanes.map((lane) => `${'  '.repeat(lane.level)}${lane.label}`)).toEqual([
      'node0',
      '  process 100', '    rank 0 of 2', '      main', '      progress', '      kernel channels',
      '  process 101', '    rank 1 of 2', '      main', '      progress', '      kernel channels',
    ]);
    expect(layout.lanes[2].detail).toBe('dp0 0xabc');
  });

  it('nest by level, and put overlapping steps on tracks of their own', () => {
    const main = layout.lanes[3];
    const tracks = Array.from({ length: main.tracks }, (_, track) => main.firstTrack + track);
    const types = tracks.map((track) => Array.from(layout.tracks.type.slice(layout.tracks.offsets[track], layout.tracks.offsets[track + 1])));
    expect(types).toEqual([[8], [9], [1]]);
    expect(layout.lanes[4].tracks).toBe(3);
    expect(layout.lanes[5].tracks).toBe(1);
  });

  it('hold every event once, in order and without overlap: 20,000 events at random', () => {
    const random = randoms(3);
    let start = 0;
    const events = Array.from({ length: 20000 }, (): Event => {
      start += Math.floor(random() * 10);
      const type = [8, 9, 1, 3, 4, 77][Math.floor(random() * 6)];
      return { type, start, stop: start + Math.floor(random() ** 4 * 100), process: 0, thread: random() < 0.5 ? 0 : 1, context: random() < 0.5 ? 0 : 1 };
    });
    const made = store({ events });
    const { tracks, shown } = layOut(made, kShowAll);
    expect(shown).toBe(20000);
    expect(new Set(tracks.rows).size).toBe(20000);
    for (let track = 0; track + 1 < tracks.offsets.length; track++) {
      for (let at = tracks.offsets[track] + 1; at < tracks.offsets[track + 1]; at++) {
        expect(tracks.start[at]).toBeGreaterThanOrEqual(tracks.end[at - 1]);
      }
    }
  });

  it('leave out what filters hide, with the lanes that are empty then', () => {
    const filtered = layOut(one, { hiddenTypes: new Set([3, 4]), ranks: (rank) => rank === 1, communicators: null });
    expect(filtered.lanes.map((lane) => lane.label)).toEqual(['node0', 'process 101', 'rank 1 of 2', 'main', 'kernel channels']);
    expect(filtered.shown).toBe(4);
    expect(layOut(one, { ...kShowAll, communicators: new Set([9]) }).shown).toBe(0);
  });

  it('show the lateness of the worst communicators, and say how many others there are', () => {
    const contexts = Array.from({ length: 40 }, (_, at) => ({ process: 0, communicator: `0x${at >> 1}`, name: '', rank: at % 2, ranks: 2 }));
    const events = contexts.map(({ rank }, context): Event => ({
      type: 1, start: 1000 * context + rank * context, stop: 60_000, process: 0, thread: 0, context, function: 1, sequence: 3,
    }));
    const many = store({ contexts, events });
    const lateness = new Lateness(many).lanes;
    const labels = (filter: Filter): string[] =>
      layOut(many, filter, lateness).lanes.flatMap(({ parent, key, label, detail }) => (parent === 0 && key.startsWith('l') ? [`${label} ${detail}`.trim()] : []));
    expect(labels(kShowAll).length).toBe(13);
    expect(labels(kShowAll)[0]).toBe('0x19');
    expect(labels(kShowAll)[12]).toBe('show 8 more communicators up to 1.015 µs');
    expect(labels({ ...kShowAll, allLateness: true }).length).toBe(20);
    expect(labels({ ...kShowAll, communicators: new Set(Array.from({ length: 13 }, (_, at) => at)) }).length).toBe(13);
  });

  it('have heights, and none where they are folded', () => {
    const open = place(layout, new Set());
    const folded = place(layout, new Set([layout.lanes[1].key]));
    expect(folded.total).toBeLessThan(open.total);
    expect(folded.top[3]).toBeNaN();
    expect(folded.visible.length).toBe(layout.lanes.length - 4);
    expect(tracksBelow(layout, 1).length).toBe(7);
    for (let track = 0; track < layout.tracks.offsets.length - 1; track++) {
      expect(trackAt(layout, open, open.trackTop[track] + 5)).toBe(track);
    }
    expect(trackAt(layout, open, open.top[0] + 3)).toBe(-1);
    expect(lanesBetween(open, 0, open.total)).toEqual([0, layout.lanes.length]);
  });
});

describe('search', () => {
  const one = store(twoRanks());
  const find = (query: string): Int32Array | null => {
    const tests = parseQuery(one, query);
    if (typeof tests === 'string') throw new Error(tests);
    return search(one, tests);
  };
  const count = (query: string): number => find(query)!.length;

  it('finds words in names, types, states, communicators', () => {
    expect(find('  ')).toBeNull();
    expect(count('allreduce')).toBe(4);
    expect(count('AllReduce coll')).toBe(4);
    expect(count('type:collapi')).toBe(2);
    expect(count('sendgpuwait')).toBe(1);
    expect(count('dp0')).toBe(14);
    expect(count('progress')).toBe(8);
    expect(count('nothing-like-it')).toBe(0);
  });

  it('finds fields and compares them', () => {
    expect(count('rank:1')).toBe(7);
    expect(count('rank:1 type:proxystep')).toBe(2);
    expect(count('sequence:5')).toBe(2);
    expect(count('pid:101 thread:main')).toBe(3);
    expect(count('duration>0.5us')).toBe(4);
    expect(count('duration<=50')).toBe(2);
    expect(count('channel=3')).toBe(2);
    expect(count('state:sendwait')).toBe(1);
    expect(count('5')).toBe(3);
  });

  it('reads lists of ranks', () => {
    expect(parseRanks(' ')).toBeNull();
    expect(parseRanks('1-')).toContain('"1-" is no rank');
    expect(parseRanks('3,a')).toContain('"a" is no rank');
    expect(parseRanks('4-2')).toContain('say 2-4');
    const some = parseRanks('0-2, 8') as (rank: number) => boolean;
    expect([0, 2, 3, 8].map((rank) => some(rank))).toEqual([true, true, false, true]);
  });

  it('says what is wrong with a query', () => {
    expect(parseQuery(one, 'rnak:1')).toMatch(/no field rnak.*there are.*rank/);
    expect(parseQuery(one, 'allreduce durtion>5us')).toContain('no field durtion');
    expect(parseQuery(one, 'duration>fast')).toContain('"fast" is no number');
    expect(parseQuery(one, 'duration>')).toContain('nothing is no number');
    expect(parseQuery(one, 'rank:')).toContain('rank: of what?');
    expect(parseQuery(one, '0x1f node0:x 3')).toHaveLength(3);
  });
});

describe('the session', () => {
  it('walks matches, and makes them and relatives stand out', () => {
    const session = new Session(store(twoRanks()));
    session.setQuery('type:proxystep');
    expect(session.matches!.length).toBe(4);
    session.step(1);
    expect(session.selection).toBe(session.matches![0]);
    session.step(1);
    expect(session.selection).toBe(session.matches![1]);
    session.step(-1);
    session.step(-1);
    expect(session.selection).toBe(session.matches![3]);
    expect(session.emphasis!.at(-1)).toBeGreaterThan(4);
    session.select(-1);
    session.setQuery('');
    expect(session.emphasis).toBeNull();
  });

  it('walks to parent, child, peer and neighbour', () => {
    const session = new Session(store(twoRanks()));
    const { type } = session.store;
    session.goTo(type.indexOf(4));
    session.toParent();
    expect(type[session.selection]).toBe(3);
    session.toChild();
    expect(type[session.selection]).toBe(4);
    session.goTo(type.indexOf(1));
    const first = session.selection;
    session.toPeer();
    expect(session.store.rank[session.selection]).toBe(1);
    session.toPeer();
    expect(session.selection).toBe(first);
  });

  it('keeps its window within reason', () => {
    const session = new Session(store(twoRanks()));
    session.setWindow(-1e12, 1e12);
    expect(session.to - session.from).toBeLessThan(4000);
    session.setWindow(5, 5);
    expect(session.to - session.from).toBe(20);
    session.setWindow(1e9, 1e9 + 100);
    expect(session.from).toBeLessThan(2100);
  });

  it('comes back to a place', () => {
    const session = new Session(store(twoRanks()));
    session.select(3);
    session.toggleType(4);
    session.toggleMark(120);
    session.setQuery('coll');
    session.setRanks('0-1');
    session.setWindow(100, 900);
    const hash = formatPlace(session.place());
    const other = new Session(session.store);
    other.apply(parsePlace(hash));
    expect(formatPlace(other.place())).toBe(hash);
    expect(other.selection).toBe(3);
    expect([...other.hidden]).toEqual([4]);
  });

  it('holds with no event at all', () => {
    const session = new Session(store({ events: [] }));
    session.fit();
    session.step(1);
    session.neighbour(1);
    session.toPeer();
    expect(session.layout.lanes).toEqual([]);
  });
});

describe('places in the address', () => {
  it('are not believed', () => {
    expect(parsePlace('#v=5,1&e=x:y&m=a,b&hide=,')).toEqual({ hidden: [0, 0] });
    expect(parsePlace(`#q=${'x'.repeat(5000)}`).query!.length).toBe(1000);
    expect(parsePlace('#e=3:ff').event).toEqual({ process: 3, id: 255n });
  });

  it('are told where they say nothing', () => {
    expect(placeFaults('')).toEqual([]);
    const whole = 'v=-1.5,9&e=3:ff&op=0xa,AllReduce,1&worst=1&q=a:b&m=1,2&hide=3,4&ranks=0-1&comm=0';
    expect(placeFaults(`#${whole}`)).toEqual([]);
    const bad = { v: '5,1', e: 'x:y', op: '0xa,AllReduce', m: 'a,b', hide: ',', comm: 'dp0', rank: '2' };
    for (const [name, value] of Object.entries(bad)) {
      expect(placeFaults(`#${whole}&${name}=${value}`).length, name).toBe(1);
      expect(placeFaults(`#${name}=${value}`)[0], name).toContain(name);
    }
    const open = (hash: string): Session => {
      const session = new Session(store(twoRanks()));
      session.apply(parsePlace(hash), placeFaults(hash));
      return session;
    };
    expect(open('#ranks=2-1').placeFaults[0]).toContain('say 1-2');
    expect(open('#op=0xabc,AllReduce,99').placeFaults[0]).toContain('no such operation');
    expect(open('#e=0:ffff').placeFaults[0]).toContain('no such event');
    const session = open('#comm=7&hide=4');
    expect(session.placeFaults).toEqual(['comm=7: this recording has 1 communicator, counted from 0']);
    expect([session.communicators, [...session.hidden], session.layout.shown > 0]).toEqual([null, [4], true]);
    // Until something else is chosen.
    session.setWindow(0, 100);
    expect(session.placeFaults.length).toBe(1);
    session.select(0);
    expect(session.placeFaults).toEqual([]);
  });
});

describe('what people read', () => {
  it('has units', () => {
    expect(duration(0)).toBe('0 ns');
    expect(duration(999)).toBe('999 ns');
    expect(duration(1234)).toBe('1.234 µs');
    expect(duration(12345678)).toBe('12.35 ms');
    expect(duration(-2.5e9)).toBe('-2.500 s');
    expect(moment(1234567890)).toBe('1.234 567 890 s');
    expect(grouped(1234567n)).toBe('1 234 567');
  });

  it('has ticks at 1, 2 and 5, that never crowd', () => {
    expect([3, 30, 70, 1e6].map((span) => tickStep(span, 10))).toEqual([1, 5, 10, 1e5]);
    for (const [from, to] of [[0, 10], [123, 4567], [5e9, 5e9 + 300], [-1e6, 7e9]] as const) {
      const found = ticks(from, to, 12);
      expect(found.length).toBeLessThanOrEqual(13);
      expect(found.length).toBeGreaterThan(3);
      expect(new Set(found.map((tick) => tick.label)).size).toBe(found.length);
      expect(found.every((tick) => tick.time >= from - 1 && tick.time <= to + 1)).toBe(true);
    }
    expect(ticks(0, 1e6, 10).map((tick) => tick.label).slice(0, 2)).toEqual(['0.0 ms', '0.1 ms']);
  });

  it('has every field of an event', () => {
    const one = store(twoRanks());
    const step = one.type.indexOf(4);
    const fields = new Map(fieldsOf(one, step).map((field) => [field.name, field.value]));
    expect(fields.get('type')).toBe('ProxyStep');
    expect(fields.get('communicator')).toBe('dp0 0xabc');
    expect(fields.get('rank')).toBe('0 of 2');
    expect(fields.get('thread')).toBe('progress, 51');
    expect(fields.get('process')).toBe('100 on node0');
    expect(fields.get('id')).toBe('0x5');
    expect(statesOf(one, step, 9).map((state) => `${state.name} ${state.after}`)).toEqual([
      'ProxyStepSendGPUWait +10 ns', 'ProxyStepSendWait +140 ns',
    ]);
    expect(titleOf(one, one.type.indexOf(1))).toBe('AllReduce #5');
    expect(titleOf(one, one.type.indexOf(6))).toBe('KernelCh 3');
  });
});
