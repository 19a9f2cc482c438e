// What is known of an event: in a small box beside the pointer, and for the pinned one in the panel at the right, with its
// relatives to walk to.

import { button, make } from './dom';
import { doubtOf, gap } from './doubt';
import { kindOf, kP2p } from './events';
import { fieldsOf, statesOf, titleOf, type Field } from './fields';
import { bytes, duration, rate } from './format';
import { kCertain, kHandedOver, kStartup } from './lateness';
import { operationOf } from './operation';
import { proxyWaits } from './proxies';
import type { Session } from './session';
import { listOf } from './store';

const kMostStates = 200;
const kMostListed = 100;
const kMostWorst = 100;
const kMostGaps = 5;
const kMostProxies = 12;
const kNoise = new Set([
  'id', 'parent', 'send buffer', 'receive buffer', 'stream', 'user tag', 'group', 'type', 'function', 'flag', 'warps', 'owner pid',
  'thread', 'process', 'traffic bytes', 'detail', 'command line',
]);
const kSaidOfOperations = new Set(['count', 'data type', 'algorithm', 'protocol', 'channels']);

function swatch(type: number): HTMLElement {
  return make('span', { class: `swatch type-${kindOf(type).type}`, 'aria-hidden': 'true' });
}

function heading(session: Session, row: number): HTMLElement {
  const kind = kindOf(session.store.type[row]);
  const long = Number.isNaN(session.store.duration(row)) ? 'open' : duration(session.store.duration(row)) || '0 ns';
  return make(
    'div',
    { class: 'heading' },
    swatch(session.store.type[row]),
    make('strong', {}, titleOf(session.store, row)),
    make('span', { class: 'kind' }, kind.name),
    make('span', { class: 'long' }, long),
  );
}

function definitions(fields: readonly Field[]): HTMLElement {
  const list = make('dl');
  for (const field of fields) list.append(make('dt', {}, field.name), make('dd', {}, field.value));
  return list;
}

/** How long a rank waited and for whom, as far as that is known. */
function waitsOf(session: Session, row: number, waited: number, waitedFor: number): string {
  const { store, lateness } = session;
  if (waitedFor < 0) return '';
  const doubt = lateness.doubts[store.collectives.of[row]];
  const last = `rank ${store.bundle.contexts[store.context[waitedFor]]?.rank ?? store.rank[waitedFor]}`;
  if (waitedFor === row) return doubt === kStartup ? 'came last, at start-up' : 'came last';
  if (!(waited > 0)) return '';
  if (doubt === kStartup) return `${duration(waited)}, at start-up`;
  return doubt === kHandedOver ? `${duration(waited)} before ${last}` : `${duration(waited)}, for ${last}`;
}

/** What an operation did, before all that was recorded of it. */
function operationFields(session: Session, row: number): Field[] {
  const { store, lateness, replays } = session;
  const operation = operationOf(store, lateness, replays, row);
  if (operation === null) return [];
  const { bytes: size, elements, how, waited, waitedFor, transfer, bandwidth, bound } = operation;
  const collective = store.collectives.of[row];
  const limit = (sign: string, text: string): string => (bound && text !== '' ? `${sign} ${text}` : text);
  const found: [string, string][] = [
    ['size', [bytes(size), elements === '' ? '' : `(${elements})`].filter((part) => part !== '').join(' ')],
    ['algorithm', how],
    [lateness.doubts[collective] === kHandedOver ? 'handed over' : 'waited', waitsOf(session, row, waited, waitedFor)],
    ['not certain', collective < 0 || waitedFor < 0 ? '' : doubtOf(store, lateness, collective)],
    ['transfer', limit('≤', duration(transfer))],
    [store.type[row] === kP2p ? 'bandwidth' : 'bus bandwidth', limit('≥', rate(bandwidth))],
  ];
  return found.flatMap(([name, value]) => (value === '' ? [] : [{ name, value }]));
}

/** What people look at first. The rest (ids, addresses, what the operation's lines say already) is folded away. */
function fieldLists(session: Session, row: number): { main: HTMLElement; rest: HTMLElement[] } {
  const operation = operationFields(session, row);
  const said = operation.length > 0 ? kSaidOfOperations : new Set<string>();
  const rooted = /^(nccl)?(broadcast|reduce|gather|scatter)$/i.test(session.store.text(Math.max(session.store.function[row], 0)));
  const all = fieldsOf(session.store, row);
  const isNoise = ({ name }: Field): boolean => kNoise.has(name) || said.has(name) || (name === 'root' && !rooted);
  const main = all.filter((field) => !isNoise(field));
  const rest = all.filter((field) => !main.includes(field));
  return { main: definitions([...operation, ...main]), rest: rest.length === 0 ? [] : [definitions(rest)] };
}

function stateList(session: Session, row: number, most: number): HTMLElement[] {
  const total = listOf(session.store.states, row).length;
  if (total === 0) return [];
  const list = make('table', { class: 'states' });
  for (const state of statesOf(session.store, row, most)) {
    list.append(
      make('tr', {}, make('td', {}, state.name), make('td', { class: 'number' }, state.after), make('td', {}, state.extra)),
    );
  }
  const more = total > most ? [make('p', { class: 'more' }, `and ${total - most} more`)] : [];
  return [make('h3', {}, total === 1 ? '1 state' : `${total} states`), list, ...more];
}

export class Tooltip {
  private row = -1;

  constructor(
    private readonly box: HTMLElement,
    private readonly lanes: HTMLElement,
    private readonly session: Session,
  ) {}

  show(row: number, x: number, y: number): void {
    if (row < 0) {
      this.row = -1;
      this.box.hidden = true;
      return;
    }
    if (row !== this.row) {
      this.row = row;
      this.box.replaceChildren(
        heading(this.session, row),
        fieldLists(this.session, row).main,
        ...stateList(this.session, row, 12),
      );
    }
    this.box.hidden = false;
    // Beside the pointer, and over the lanes alone: never over the panel.
    const lanes = this.lanes.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.box;
    const left = x + 16 + offsetWidth > lanes.right ? x - offsetWidth - 12 : x + 16;
    const top = y + 16 + offsetHeight > lanes.bottom ? lanes.bottom - offsetHeight - 8 : y + 16;
    const [right, low] = [Math.min(left, lanes.right - offsetWidth - 2), Math.max(top, 4)];
    this.box.style.transform = `translate(${Math.max(right, 2)}px, ${low}px)`;
    if (Math.max(right, 2) + offsetWidth > lanes.right) this.box.hidden = true;
  }
}

export class Panel {
  constructor(
    private readonly box: HTMLElement,
    private readonly session: Session,
  ) {}

  draw(): void {
    const { selection, relatives, worst } = this.session;
    const pinned = selection >= 0 && relatives !== null;
    this.box.hidden = !pinned && !worst;
    this.box.setAttribute('aria-label', pinned ? 'The pinned event' : 'The worst operations');
    if (!pinned) {
      this.box.replaceChildren(...(worst ? this.worst() : []));
      return;
    }
    const close = button('×', 'Let go of this event (Esc)', () => this.session.select(-1), { class: 'close' });
    const children = Array.from(listOf(this.session.store.children, selection));
    const { main, rest } = fieldLists(this.session, selection);
    const replayed = this.session.replays.of(selection);
    const peers = replayed.length > 0 ? replayed : relatives.peers;
    this.box.replaceChildren(
      close,
      heading(this.session, selection),
      this.steps(),
      main,
      ...this.collective(peers),
      ...this.proxies(selection, peers),
      ...stateList(this.session, selection, kMostStates),
      ...this.walk('Parents', relatives.ancestors),
      ...this.walk('Children', children),
      make('details', {}, make('summary', {}, 'Everything else that was recorded'), ...rest),
    );
  }

  /** The collectives whose ranks arrived furthest apart, each with the rank that came last; then those of start-up. */
  private worst(): HTMLElement[] {
    const { session } = this;
    const { store, lateness } = session;
    const close = button('×', 'Close this list', () => session.showWorst(false), { class: 'close' });
    const title = make('div', { class: 'heading' }, make('strong', {}, 'The worst operations'));
    const found = session.worstShown(kMostWorst);
    const startups = session.worstShown(kMostWorst, true);
    const say = (text: string): HTMLElement => make('p', { class: 'more' }, text);
    if (found.length + startups.length === 0) return [close, title, say('No collective is here of which two ranks were recorded.')];
    const gaps = store.communicators.map(gap).filter((text) => text !== '');
    const lost = gaps.slice(0, kMostGaps).map((text): HTMLElement => make('p', { class: 'lost' }, `${text[0].toUpperCase()}${text.slice(1)}.`));
    if (gaps.length > kMostGaps) lost.push(say(`The same holds for ${gaps.length - kMostGaps} more communicators.`));
    const isWait = found.every((one) => lateness.isExact(one));
    const words = found.length === 0 ? '' : isWait ? 'By how long the first rank waited for the last one, which is named. '
      : 'By how far apart ranks came, with the last one. Where operations were only handed over, nobody may have waited. ';
    const several = store.communicators.length > 1 ? 'Communicators: see the lanes of lateness. ' : '';
    const doubts = found.some((one) => lateness.doubts[one] !== kCertain) ? 'A question mark: it is not certain who came last; the operation says why.' : '';
    return [
      close, title, ...lost, say(`${words}${several}${doubts}`), ...found.map((one) => this.worstLink(one)),
      ...(startups.length === 0 ? [] : [make('h3', {}, 'At start-up'), say('Processes start at different times: nobody is named.')]),
      ...startups.map((one) => this.worstLink(one)),
    ];
  }

  private worstLink(collective: number): HTMLElement {
    const { lateness } = this.session;
    const doubt = lateness.doubts[collective];
    const link = this.link(lateness.lastRow[collective], `+${duration(lateness.late(collective))}`, () => this.goToCollective(collective));
    const where = link.querySelector('.where')!;
    if (doubt === kStartup) where.textContent = '';
    else if (doubt !== kCertain) where.textContent += ' ?';
    link.title = doubtOf(this.session.store, lateness, collective);
    return link;
  }

  private goToCollective(collective: number): void {
    this.session.select(this.session.lateness.lastRow[collective]);
    this.session.fit();
  }

  private steps(): HTMLElement {
    const { session } = this;
    return make(
      'div',
      { class: 'steps' },
      button('Fit', 'Zoom to this event and its relatives (f)', () => session.fit()),
      button('‹ Before', 'The event before it in its track (,)', () => session.neighbour(-1)),
      button('After ›', 'The event after it in its track (.)', () => session.neighbour(1)),
      ...(session.worst ? [button('Worst', 'Back to the list of the worst operations (Esc)', () => session.select(-1))] : []),
    );
  }

  private link(row: number, extra: string, go = (): void => this.session.goTo(row)): HTMLElement {
    const { session } = this;
    const rank = session.store.bundle.contexts[session.store.context[row]]?.rank;
    const where = rank === undefined ? '' : `rank ${rank}`;
    const hidden = session.layout.tracks.of[row] < 0 ? ' (filtered out)' : '';
    const press = button('', `Go to ${titleOf(session.store, row)}`, go, { class: 'link' });
    press.append(
      swatch(session.store.type[row]),
      make('span', { class: 'what' }, `${titleOf(session.store, row)}${hidden}`),
      make('span', { class: 'where' }, where),
      make('span', { class: 'long' }, extra),
    );
    if (row === session.selection) press.setAttribute('aria-current', 'true');
    return press;
  }

  private walk(title: string, rows: number[]): HTMLElement[] {
    if (rows.length === 0) return [];
    const links = rows.slice(0, kMostListed).map((row) => {
      const long = this.session.store.duration(row);
      return this.link(row, Number.isNaN(long) ? 'open' : duration(long) || '0 ns');
    });
    const more = rows.length > kMostListed ? [make('p', { class: 'more' }, `and ${rows.length - kMostListed} more`)] : [];
    return [make('h3', {}, `${title} (${rows.length})`), ...links, ...more];
  }

  /** Between which ranks the proxies of an operation waited for each other. */
  private proxies(selection: number, peers: readonly number[]): HTMLElement[] {
    const { store } = this.session;
    const waits = proxyWaits(store, store.type[selection] === kP2p ? [selection] : peers);
    if (waits.length === 0) return [];
    const links = waits.slice(0, kMostProxies).map(({ rank, peer, what, ns, chunks, row }) => {
      const link = this.link(row, duration(ns));
      link.title = `In sum over ${chunks} chunks; goes to the proxy's operation that waited longest`;
      link.querySelector('.what')!.textContent = `rank ${rank} for ${what === 'data' ? 'data from' : 'room at'} rank ${peer}`;
      link.querySelector('.where')!.textContent = '';
      return link;
    });
    const more = waits.length > kMostProxies ? [make('p', { class: 'more' }, `and ${waits.length - kMostProxies} shorter ones`)] : [];
    return [make('h3', {}, 'Proxies waited'), ...links, ...more];
  }

  /** The same operation on all ranks, in order of arrival: how much later than the first each came. */
  private collective(peers: number[]): HTMLElement[] {
    if (peers.length < 2) return [];
    const { lateness } = this.session;
    const ordered = [...peers].sort((a, b) => lateness.arrival(a) - lateness.arrival(b) || a - b);
    const first = lateness.arrival(ordered[0]);
    const links = ordered.slice(0, kMostListed).map((row) => {
      const late = lateness.arrival(row) - first;
      return this.link(row, late === 0 ? 'first' : `+${duration(late)}`);
    });
    const more = ordered.length > kMostListed ? [make('p', { class: 'more' }, `and ${ordered.length - kMostListed} later`)] : [];
    return [make('h3', {}, `On ${peers.length} ranks, by arrival`), ...links, ...more];
  }
}
