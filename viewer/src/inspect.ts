// `window.strettoViewer`: what is on the screen, for tests and for people at the browser's console.

import type { Field } from './fields';
import { fieldsOf, statesOf } from './fields';
import type { Overlay } from './overlay';
import type { Session } from './session';
import type { Bar, Timeline } from './timeline';

export interface Inspector {
  readonly events: number;
  lanes(): { kind: string; label: string; detail: string; level: number; tracks: number; events: number; hidden: boolean; life: number[] }[];
  bars(most?: number): (Bar & { type: number; open: boolean })[];
  lines(): { parents: { child: number; parent: number }[]; collectives: number[][] };
  fields(row: number): Field[];
  states(row: number): { name: string; after: string; extra: string }[];
  parent(row: number): number;
  select(row: number): void;
  selection(): number;
  matches(): number;
  /** The worst collectives: the row of the last rank, when it arrived and how long after the first. */
  worst(): { row: number; at: number; late: number }[];
  view(): { from: number; to: number; scroll: number; height: number; total: number };
  setView(from: number, to: number): void;
  scrollTo(top: number): void;
  /** Draws at once, and says how many milliseconds all of it took. */
  draw(): number;
  /** How long the bars of the last frames took. */
  frames(): number[];
  loaded: Record<string, number>;
}

declare global {
  interface Window {
    strettoViewer?: Inspector;
  }
}

/** Milliseconds that the stages of loading took; filled by main.ts. */
export const kLoaded: Record<string, number> = {};

export function inspector(session: Session, timeline: Timeline, overlay: Overlay, draw: () => void): Inspector {
  const { store } = session;
  return {
    events: store.rows,
    lanes: () =>
      session.layout.lanes.map((lane, number) => {
        const { offsets } = session.layout.tracks;
        const events = lane.tracks > 0 ? offsets[lane.firstTrack + lane.tracks] - offsets[lane.firstTrack] : 0;
        const { kind, label, detail, level, tracks } = lane;
        const member = store.bundle.contexts[lane.context];
        const life = member === undefined ? [] : [member.init, member.finalize];
        return { kind, label, detail, level, tracks, events, hidden: Number.isNaN(session.geometry.top[number]), life };
      }),
    bars: (most = 100000) =>
      timeline.bars(most).map((bar) => ({ ...bar, type: store.type[bar.row], open: store.open[bar.row] === 1 })),
    lines: () => ({
      parents: overlay.drawn.parents.map(({ child, parent }) => ({ child, parent })),
      collectives: overlay.drawn.collectives.map(({ rows }) => rows),
    }),
    fields: (row) => fieldsOf(store, row),
    states: (row) => statesOf(store, row, 1e6),
    parent: (row) => store.parent[row],
    select: (row) => session.select(row),
    selection: () => session.selection,
    worst: () =>
      session.worstShown(1000).map((one) => {
        const { lateness } = session;
        return { row: lateness.lastRow[one], at: lateness.last[one], late: lateness.late(one) };
      }),
    matches: () => session.matches?.length ?? -1,
    view: () => ({ from: session.from, to: session.to, scroll: session.scroll, height: session.viewHeight, total: session.geometry.total }),
    setView: (from, to) => session.setWindow(from, to),
    scrollTo: (top) => session.scrollTo(top),
    draw: () => {
      const began = performance.now();
      session.scrollTo(session.scroll);
      draw();
      return performance.now() - began;
    },
    frames: () => [...timeline.frames],
    loaded: kLoaded,
  };
}
