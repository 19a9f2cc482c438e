// Pointer, wheel and keys on the lanes, as moves of the session.

import type { Session } from './session';
import type { Timeline } from './timeline';

export interface Actions {
  focusSearch(): void;
  toggleTheme(): void;
  toggleHelp(): void;
  hovered(row: number, x: number, y: number): void;
}

const kZoom = 1.4;

export function listenToPointer(canvas: HTMLElement, session: Session, timeline: Timeline, actions: Actions): void {
  let drag: { x: number; y: number; from: number; to: number; scroll: number; moved: boolean } | null = null;
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    const { from, to, scroll } = session;
    drag = { x: event.offsetX, y: event.offsetY, from, to, scroll, moved: false };
  });
  canvas.addEventListener('pointermove', (event) => {
    session.setCursor(timeline.timeAt(event.offsetX));
    if (drag === null) {
      const row = timeline.rowAt(event.offsetX, event.offsetY);
      session.setHover(row);
      canvas.style.cursor = row >= 0 ? 'pointer' : '';
      actions.hovered(row, event.clientX, event.clientY);
      return;
    }
    const [right, down] = [event.offsetX - drag.x, event.offsetY - drag.y];
    if (!drag.moved && Math.hypot(right, down) < 4) return;
    drag.moved = true;
    actions.hovered(-1, 0, 0);
    const shift = (right / timeline.width) * (drag.to - drag.from);
    session.setWindow(drag.from - shift, drag.to - shift);
    session.scrollTo(drag.scroll - down);
  });
  canvas.addEventListener('pointerup', (event) => {
    if (drag !== null && !drag.moved) session.select(timeline.rowAt(event.offsetX, event.offsetY));
    drag = null;
  });
  canvas.addEventListener('pointercancel', () => (drag = null));
  canvas.addEventListener('pointerleave', () => {
    session.setHover(-1);
    session.setCursor(NaN);
    actions.hovered(-1, 0, 0);
  });
  canvas.addEventListener('dblclick', () => session.fit());
  listenToWheel(canvas, session, timeline, actions);
}

/** The wheel zooms at the pointer; with Shift it scrolls the lanes; sideways it pans. */
function listenToWheel(canvas: HTMLElement, session: Session, timeline: Timeline, actions: Actions): void {
  canvas.addEventListener(
    'wheel',
    (event) => {
      event.preventDefault();
      actions.hovered(-1, 0, 0);
      const lines = event.deltaMode === 1 ? 16 : 1;
      if (event.shiftKey) session.scrollTo(session.scroll + (event.deltaY || event.deltaX) * lines);
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) session.pan((event.deltaX * lines) / timeline.width);
      else session.zoom(Math.exp(event.deltaY * lines * 0.0016), timeline.timeAt(event.offsetX));
    },
    { passive: false },
  );
}

export function listenToKeys(session: Session, actions: Actions, signal: AbortSignal): void {
  const hasCursor = (): boolean => session.cursor >= session.from && session.cursor <= session.to;
  const middle = (): number => (hasCursor() ? session.cursor : (session.from + session.to) / 2);
  const moves: Record<string, () => void> = {
    w: () => session.zoom(1 / kZoom, middle()),
    s: () => session.zoom(kZoom, middle()),
    '+': () => session.zoom(1 / kZoom, middle()),
    '-': () => session.zoom(kZoom, middle()),
    a: () => session.pan(-0.15),
    d: () => session.pan(0.15),
    ArrowLeft: () => session.pan(-0.15),
    ArrowRight: () => session.pan(0.15),
    ArrowUp: () => session.scrollTo(session.scroll - 64),
    ArrowDown: () => session.scrollTo(session.scroll + 64),
    PageUp: () => session.scrollTo(session.scroll - session.viewHeight * 0.9),
    PageDown: () => session.scrollTo(session.scroll + session.viewHeight * 0.9),
    Home: () => session.scrollTo(0),
    End: () => session.scrollTo(Infinity),
    f: () => session.fit(),
    F: () => session.fitAll(),
    '0': () => session.fitAll(),
    '/': () => actions.focusSearch(),
    n: () => session.step(1),
    N: () => session.step(-1),
    m: () => session.toggleMark(hasCursor() || session.selection < 0 ? middle() : session.store.start[session.selection]),
    M: () => session.clearMarks(),
    '.': () => session.neighbour(1),
    ',': () => session.neighbour(-1),
    p: () => session.toParent(),
    c: () => session.toChild(),
    r: () => session.toPeer(),
    t: () => actions.toggleTheme(),
    '?': () => actions.toggleHelp(),
    Escape: () => (session.selection < 0 ? session.showWorst(false) : session.select(-1)),
    x: () => session.showWorst(!session.worst),
  };
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector('dialog[open]') !== null && event.key !== '?') return;
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    move();
  }, { signal });
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLInputElement && target.type !== 'checkbox';
}
