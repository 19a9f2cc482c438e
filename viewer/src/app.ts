// One opened recording on the page: makes the views, and redraws, once a frame, those that a change concerns.

import { byId, make } from './dom';
import { kKinds } from './events';
import { duration, grouped } from './format';
import { Gutter } from './gutter';
import { formatPlace, parsePlace, placeFaults } from './hash';
import { inspector } from './inspect';
import { listenToKeys, listenToPointer } from './input';
import { Minimap, Ruler } from './minimap';
import { Overlay } from './overlay';
import { Panel, Tooltip } from './panel';
import { showQuality, suspicions } from './quality';
import { Session, type Change } from './session';
import type { Store } from './store';
import { kDark, kLight, type Theme } from './theme';
import { Timeline } from './timeline';
import { Toolbar } from './toolbar';

export class App {
  private readonly session: Session;
  private readonly timeline: Timeline;
  private readonly overlay: Overlay;
  private readonly minimap: Minimap;
  private readonly ruler: Ruler;
  private readonly gutter: Gutter;
  private readonly panel: Panel;
  private readonly tooltip: Tooltip;
  private readonly toolbar: Toolbar;
  private readonly scrollbar = byId('scrollbar');
  private readonly scrollHeight = byId('scroll-height');
  private theme: Theme = kLight;
  private dirty = { bars: true, lines: true, panel: true, toolbar: true };
  private waiting = false;
  private hashTimer = 0;
  private ownHash = '';

  /** Until `signal` is aborted: then the page is another recording's. */
  constructor(
    store: Store,
    private readonly signal: AbortSignal,
  ) {
    this.session = new Session(store);
    this.timeline = new Timeline(byId('bars') as HTMLCanvasElement, this.session);
    this.overlay = new Overlay(byId('overlay') as HTMLCanvasElement, this.session, this.timeline);
    this.minimap = new Minimap(byId('minimap') as HTMLCanvasElement, this.session);
    this.ruler = new Ruler(byId('ruler') as HTMLCanvasElement, this.session, this.timeline);
    this.gutter = new Gutter(byId('gutter'), this.session);
    this.panel = new Panel(byId('panel'), this.session);
    this.tooltip = new Tooltip(byId('tooltip'), byId('stage'), this.session);
    this.toolbar = new Toolbar(this.session);
    this.session.listen((change) => this.changed(change));
    this.wire();
    this.readTheme();
    this.session.apply(parsePlace(location.hash), placeFaults(location.hash));
    this.resize();
    this.drawNow();
    window.strettoViewer = inspector(this.session, this.timeline, this.overlay, () => this.drawNow());
  }

  private wire(): void {
    const actions = {
      focusSearch: () => this.toolbar.focusSearch(),
      toggleTheme: () => this.toggleTheme(),
      toggleHelp: () => toggleDialog('help'),
      hovered: (row: number, x: number, y: number) => this.tooltip.show(row, x, y),
    };
    listenToPointer(this.overlay.canvas, this.session, this.timeline, actions);
    listenToKeys(this.session, actions, this.signal);
    byId('worst').addEventListener('click', () => this.session.showWorst(!this.session.worst));
    byId('theme').addEventListener('click', actions.toggleTheme);
    byId('help-button').addEventListener('click', actions.toggleHelp);
    new ResizeObserver(() => this.resize()).observe(byId('stage'));
    new ResizeObserver(() => this.resize()).observe(byId('minimap'));
    this.scrollbar.addEventListener('scroll', () => {
      if (Math.abs(this.scrollbar.scrollTop - this.session.scroll) >= 1) this.session.scrollTo(this.scrollbar.scrollTop);
    });
    window.addEventListener('hashchange', () => {
      if (location.hash !== this.ownHash) this.session.apply(parsePlace(location.hash), placeFaults(location.hash));
    }, { signal: this.signal });
    window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.readTheme(), { signal: this.signal });
  }

  private readTheme(): void {
    const chosen = remembered();
    const dark = chosen === null ? window.matchMedia('(prefers-color-scheme: dark)').matches : chosen === 'dark';
    this.setTheme(dark ? kDark : kLight);
  }

  private toggleTheme(): void {
    this.setTheme(this.theme === kLight ? kDark : kLight);
    remember(this.theme.name);
  }

  private setTheme(theme: Theme): void {
    this.theme = theme;
    document.documentElement.dataset['theme'] = theme.name;
    for (const kind of kKinds) document.documentElement.style.setProperty(`--type-${kind.type}`, kind[theme.name]);
    this.minimap.invalidate();
    this.changed('layout');
  }

  private changed(change: Change): void {
    if (change !== 'hover') this.dirty.bars = true;
    // What was under the pointer is somewhere else now.
    if (change !== 'hover') this.tooltip.show(-1, 0, 0);
    if (change === 'layout') this.minimap.invalidate();
    if (change === 'selection' || change === 'layout') this.dirty.panel = true;
    if (change !== 'hover' && change !== 'window') this.dirty.toolbar = true;
    if (change !== 'hover') this.rememberPlace();
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => this.drawNow());
  }

  private drawNow(): void {
    this.waiting = false;
    if (this.dirty.toolbar) this.toolbar.draw();
    if (this.dirty.panel) this.panel.draw();
    if (this.dirty.bars) {
      this.timeline.draw(this.theme);
      this.overlay.collectLines();
      this.gutter.draw();
      this.minimap.draw(this.theme);
      this.showScroll();
    }
    this.overlay.draw(this.theme);
    this.ruler.draw(this.theme);
    this.showStatus();
    this.dirty = { bars: false, lines: false, panel: false, toolbar: false };
  }

  private resize(): void {
    if (this.signal.aborted) return;
    const stage = byId('stage').getBoundingClientRect();
    this.session.viewHeight = stage.height;
    this.timeline.resize(stage.width, stage.height);
    this.overlay.resize(stage.width, stage.height);
    this.ruler.resize(byId('ruler').clientWidth, byId('ruler').clientHeight);
    this.minimap.resize(byId('minimap').clientWidth, byId('minimap').clientHeight);
    this.session.scrollTo(this.session.scroll);
    // In the same frame: a resized canvas is empty until it is drawn.
    this.dirty.bars = true;
    this.drawNow();
  }

  private showScroll(): void {
    this.scrollHeight.style.height = `${this.session.geometry.total}px`;
    if (Math.abs(this.scrollbar.scrollTop - this.session.scroll) >= 1) this.scrollbar.scrollTop = this.session.scroll;
  }

  private showStatus(): void {
    const { session } = this;
    const { shown, lanes } = session.layout;
    const of = shown === session.store.rows ? '' : ` of ${grouped(session.store.rows)}`;
    const threads = lanes.filter((lane) => lane.kind === 'thread').length;
    byId('shown').textContent = `${grouped(shown)}${of} events in ${grouped(threads)} lanes`;
    byId('span').textContent = `${duration(session.to - session.from)} across`;
    const none = byId('nothing');
    none.hidden = shown > 0;
    none.textContent = session.store.rows === 0 ? kEmpty : 'The filters leave nothing to show.';
    if (this.dirty.panel) byId('spoken').textContent = session.selection < 0 ? '' : session.describe(session.selection);
  }

  private rememberPlace(): void {
    window.clearTimeout(this.hashTimer);
    this.hashTimer = window.setTimeout(() => {
      if (this.signal.aborted) return;
      const hash = formatPlace(this.session.place());
      this.ownHash = hash;
      try {
        history.replaceState(null, '', hash === '' ? '#' : hash);
      } catch {
        // Some browsers refuse this for local files; the view works without it.
      }
      this.ownHash = location.hash;
    }, 200);
  }
}

const kEmpty =
  'This recording holds no events. Was the plugin loaded (NCCL_PROFILER_PLUGIN), and does its mask name the events wanted?';

function remembered(): string | null {
  try {
    return localStorage.getItem('stretto-theme');
  } catch {
    return null;
  }
}

function remember(theme: string): void {
  try {
    localStorage.setItem('stretto-theme', theme);
  } catch {
    // Not kept where the browser keeps nothing for local files.
  }
}

export function toggleDialog(id: string): void {
  const dialog = byId(id) as HTMLDialogElement;
  if (dialog.open) dialog.close();
  else dialog.showModal();
}

/** The name of the recording and what is wrong with it, in the bar above. */
export function showTitle(store: Store): void {
  const { title } = store.bundle;
  document.title = title === '' ? 'Stretto timeline' : `${title} · Stretto timeline`;
  byId('title').textContent = title;
  const found = suspicions(store);
  const open = byId('quality-button');
  open.textContent = found.length === 0 ? 'Recording' : `⚠ ${found[0]}${found.length > 1 ? ` and ${found.length - 1} more` : ''}`;
  open.classList.toggle('warning', found.length > 0);
  open.addEventListener('click', () => {
    showQuality(store, byId('quality-content'));
    toggleDialog('quality');
  });
  for (const dialog of document.querySelectorAll('dialog')) {
    const close = make('button', { type: 'button', class: 'close', 'aria-label': 'Close' }, '×');
    close.addEventListener('click', () => dialog.close());
    dialog.prepend(close);
    dialog.addEventListener('click', (event) => {
      if (event.target === dialog) dialog.close();
    });
  }
}
