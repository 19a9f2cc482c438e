// What is known of an event: in a small box beside the pointer, and for the pinned one in the panel at the right, with its
// relatives to walk to.

import { button, make } from './dom';
import { kindOf } from './events';
import { fieldsOf, statesOf, titleOf } from './fields';
import { duration } from './format';
import type { Session } from './session';
import { listOf } from './store';

const kMostStates = 200;
const kMostListed = 100;

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

function fieldList(session: Session, row: number): HTMLElement {
  const list = make('dl');
  for (const field of fieldsOf(session.store, row)) {
    list.append(make('dt', {}, field.name), make('dd', {}, field.value));
  }
  return list;
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
        fieldList(this.session, row),
        ...stateList(this.session, row, 12),
      );
    }
    this.box.hidden = false;
    const { innerWidth, innerHeight } = window;
    const { offsetWidth, offsetHeight } = this.box;
    const left = x + 16 + offsetWidth > innerWidth ? x - offsetWidth - 12 : x + 16;
    const top = y + 16 + offsetHeight > innerHeight ? innerHeight - offsetHeight - 8 : y + 16;
    this.box.style.transform = `translate(${Math.max(left, 4)}px, ${Math.max(top, 4)}px)`;
  }
}

export class Panel {
  constructor(
    private readonly box: HTMLElement,
    private readonly session: Session,
  ) {}

  draw(): void {
    const { selection, relatives } = this.session;
    this.box.hidden = selection < 0 || relatives === null;
    if (relatives === null || selection < 0) {
      this.box.replaceChildren();
      return;
    }
    const close = button('×', 'Let go of this event (Esc)', () => this.session.select(-1), { class: 'close' });
    const children = Array.from(listOf(this.session.store.children, selection));
    this.box.replaceChildren(
      close,
      heading(this.session, selection),
      this.steps(),
      fieldList(this.session, selection),
      ...stateList(this.session, selection, kMostStates),
      ...this.collective(relatives.peers),
      ...this.walk('Parents', relatives.ancestors),
      ...this.walk('Children', children),
    );
  }

  private steps(): HTMLElement {
    const { session } = this;
    return make(
      'div',
      { class: 'steps' },
      button('Fit', 'Zoom to this event and its relatives (f)', () => session.fit()),
      button('‹ Before', 'The event before it in its track (,)', () => session.neighbour(-1)),
      button('After ›', 'The event after it in its track (.)', () => session.neighbour(1)),
    );
  }

  private link(row: number, extra: string): HTMLElement {
    const { session } = this;
    const rank = session.store.bundle.contexts[session.store.context[row]]?.rank;
    const where = rank === undefined ? '' : `rank ${rank}`;
    const hidden = session.layout.tracks.of[row] < 0 ? ' (filtered out)' : '';
    const press = button('', `Go to ${titleOf(session.store, row)}`, () => session.goTo(row), { class: 'link' });
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

  /** The same operation on all ranks: when each began, after the first one. */
  private collective(peers: number[]): HTMLElement[] {
    if (peers.length < 2) return [];
    const { store } = this.session;
    const first = Math.min(...peers.map((row) => store.start[row]));
    const links = peers.slice(0, kMostListed).map((row) => {
      const late = store.start[row] - first;
      return this.link(row, late === 0 ? 'first' : `+${duration(late)}`);
    });
    return [make('h3', {}, `The same operation on ${peers.length} ranks, by start`), ...links];
  }
}
