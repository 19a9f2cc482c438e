// The controls above the lanes: search, filters, what lines are drawn, theme, help; and the legend, which is a filter too.

import { button, byId, make } from './dom';
import { kKinds, kindOf } from './events';
import { grouped } from './format';
import type { Session } from './session';

export class Toolbar {
  private readonly query = byId('query') as HTMLInputElement;
  private readonly found = byId('found');
  private readonly ranks = byId('ranks') as HTMLInputElement;
  private readonly chips = new Map<number, HTMLButtonElement>();
  private readonly toggles: [HTMLButtonElement, () => boolean][] = [];
  private waiting = 0;
  private ranksFault = '';

  constructor(private readonly session: Session) {
    this.wireSearch();
    this.wireRanks();
    this.makeCommunicators();
    this.makeToggles();
    this.makeLegend();
    this.draw();
  }

  private wireSearch(): void {
    const { session } = this;
    this.query.addEventListener('input', () => {
      window.clearTimeout(this.waiting);
      this.waiting = window.setTimeout(() => session.setQuery(this.query.value), session.store.rows > 100000 ? 250 : 60);
    });
    this.query.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') {
        window.clearTimeout(this.waiting);
        if (session.query !== this.query.value) session.setQuery(this.query.value);
        session.step(event.shiftKey ? -1 : 1);
      } else if (event.key === 'Escape') {
        this.query.value = '';
        session.setQuery('');
        this.query.blur();
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
    byId('previous').addEventListener('click', () => session.step(-1));
    byId('next').addEventListener('click', () => session.step(1));
  }

  focusSearch(): void {
    this.query.focus();
    this.query.select();
  }

  private wireRanks(): void {
    this.ranks.addEventListener('change', () => {
      this.ranksFault = this.session.setRanks(this.ranks.value);
      this.draw();
    });
    this.ranks.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') this.ranks.blur();
      event.stopPropagation();
    });
  }

  private makeCommunicators(): void {
    const { session } = this;
    const all = session.store.communicators;
    const list = byId('communicator-list');
    const boxes = all.slice(0, 500).map((communicator, number) => {
      const box = make('input', { type: 'checkbox', value: String(number) });
      const name = communicator.name === '' ? communicator.id : `${communicator.name} ${communicator.id}`;
      list.append(make('label', {}, box, make('span', {}, name), make('span', { class: 'where' }, `${communicator.ranks} ranks`)));
      box.addEventListener('change', () => {
        const chosen = new Set(boxes.filter((one) => one.checked).map((one) => Number(one.value)));
        session.setCommunicators(chosen.size === boxes.length ? null : chosen);
      });
      return box;
    });
    const every = button('All', 'Show all communicators', () => session.setCommunicators(null));
    list.prepend(every);
    if (all.length > 500) list.append(make('p', { class: 'more' }, `and ${all.length - 500} more: search for comm:NAME`));
    this.drawCommunicators = () => {
      const chosen = session.communicators;
      for (const box of boxes) box.checked = chosen === null || chosen.has(Number(box.value));
      const count = chosen === null ? 'all' : `${chosen.size} of ${all.length}`;
      byId('communicator-count').textContent = count;
    };
  }

  private drawCommunicators: () => void = () => undefined;

  private makeToggles(): void {
    const { session } = this;
    const parents = byId('toggle-parents') as HTMLButtonElement;
    const collectives = byId('toggle-collectives') as HTMLButtonElement;
    parents.addEventListener('click', () => session.toggleLines('showParents'));
    collectives.addEventListener('click', () => session.toggleLines('showCollectives'));
    this.toggles.push([parents, () => session.showParents], [collectives, () => session.showCollectives]);
    byId('fit').addEventListener('click', () => session.fitAll());
  }

  private makeLegend(): void {
    const each = new Int32Array(256);
    for (const type of this.session.store.type) each[type]++;
    const counts = new Map<number, number>();
    each.forEach((count, type) => {
      if (count > 0) counts.set(kindOf(type).type, (counts.get(kindOf(type).type) ?? 0) + count);
    });
    const types = kKinds.filter((kind) => counts.has(kind.type)).map((kind) => kind.type);
    const legend = byId('legend');
    for (const type of types) {
      const kind = kindOf(type);
      const title = `${kind.name}: ${kind.words}. Click: hide or show. Double click: only this one.`;
      const chip = button('', title, () => this.session.toggleType(type), { class: 'chip' });
      chip.append(
        make('span', { class: `swatch type-${type}`, 'aria-hidden': 'true' }),
        make('span', {}, kind.name),
        make('span', { class: 'count' }, grouped(counts.get(type) ?? 0)),
      );
      chip.setAttribute('aria-label', `${kind.name}, ${counts.get(type)} events`);
      chip.addEventListener('dblclick', () => this.session.soloType(type, types));
      this.chips.set(type, chip);
      legend.append(chip);
    }
  }

  /** Why a filter cannot be what it says, in a line of its own. */
  private drawFaults(): void {
    const faults = [
      [this.query, this.session.queryFault, 'Search'],
      [this.ranks, this.ranksFault, 'Ranks'],
    ] as const;
    for (const [input, fault] of faults) input.setAttribute('aria-invalid', String(fault !== ''));
    const said = faults.flatMap(([, fault, name]) => (fault === '' ? [] : [`${name}: ${fault}.`]));
    said.push(...this.session.placeFaults.slice(0, 5).map((fault) => `Address: ${fault}.`));
    byId('fault').hidden = said.length === 0;
    byId('fault').textContent = said.join(' ');
  }

  draw(): void {
    const { session } = this;
    if (document.activeElement !== this.query) this.query.value = session.query;
    if (document.activeElement !== this.ranks && this.ranksFault === '') this.ranks.value = session.ranksText;
    this.drawFaults();
    byId('worst').setAttribute('aria-pressed', String(session.worst));
    const { matches, match } = session;
    const at = match >= 0 ? `${grouped(match + 1)} of ` : '';
    this.found.textContent = matches === null ? '' : matches.length === 0 ? 'nothing' : `${at}${grouped(matches.length)}`;
    for (const [element, state] of this.toggles) element.setAttribute('aria-pressed', String(state()));
    for (const [type, chip] of this.chips) chip.setAttribute('aria-pressed', String(!session.hidden.has(type)));
    this.drawCommunicators();
  }
}
