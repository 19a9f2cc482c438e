// The names of the lanes, left of the bars: one element for each lane in view, used again as the view moves.

import { make } from './dom';
import { lanesBetween } from './geometry';
import { isFoldable } from './layout';
import type { Session } from './session';

interface Label {
  readonly element: HTMLElement;
  readonly twist: HTMLElement;
  readonly name: HTMLElement;
  readonly detail: HTMLElement;
  lane: number;
}

export class Gutter {
  private readonly labels: Label[] = [];

  constructor(
    private readonly box: HTMLElement,
    private readonly session: Session,
  ) {
    box.addEventListener('click', (event) => this.press(event));
    box.addEventListener(
      'wheel',
      (event) => {
        event.preventDefault();
        session.scrollTo(session.scroll + event.deltaY);
      },
      { passive: false },
    );
  }

  private press(event: MouseEvent): void {
    const element = (event.target as Element).closest<HTMLElement>('.lane');
    const lane = this.session.layout.lanes[Number(element?.dataset['lane'] ?? -1)];
    if (lane?.kind === 'more') this.session.showAllLateness();
    else if (lane !== undefined && isFoldable(lane)) this.session.fold(lane.key);
  }

  draw(): void {
    const { geometry, scroll, viewHeight } = this.session;
    const [first, last] = lanesBetween(geometry, scroll, scroll + viewHeight);
    for (let index = first; index < last; index++) this.show(this.label(index - first), geometry.visible[index]);
    for (let spare = last - first; spare < this.labels.length; spare++) this.labels[spare].element.hidden = true;
  }

  private label(index: number): Label {
    if (index < this.labels.length) return this.labels[index];
    const twist = make('span', { class: 'twist', 'aria-hidden': 'true' });
    const name = make('span', { class: 'name' });
    const detail = make('span', { class: 'detail' });
    const element = make('button', { type: 'button', class: 'lane' }, twist, name, detail);
    this.box.append(element);
    const label = { element, twist, name, detail, lane: -1 };
    this.labels.push(label);
    return label;
  }

  private show(label: Label, number: number): void {
    const { layout, geometry, scroll, folded } = this.session;
    const lane = layout.lanes[number];
    const { element } = label;
    element.hidden = false;
    element.style.transform = `translateY(${geometry.top[number] - scroll}px)`;
    element.style.height = `${geometry.height[number]}px`;
    element.dataset['lane'] = String(number);
    element.dataset['kind'] = lane.kind;
    label.name.textContent = lane.label;
    label.detail.textContent = lane.detail;
    element.title = lane.detail === '' ? lane.label : `${lane.label}  ${lane.detail}`;
    if (!isFoldable(lane)) {
      label.twist.textContent = '';
      element.tabIndex = lane.kind === 'more' ? 0 : -1;
      element.removeAttribute('aria-expanded');
      return;
    }
    const open = !folded.has(lane.key);
    label.twist.textContent = open ? '▾' : '▸';
    element.tabIndex = 0;
    element.setAttribute('aria-expanded', String(open));
  }
}
