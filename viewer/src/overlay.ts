// What lies above the bars: lines along parents (blue, dotted), lines between the ranks of a collective (red), outlines of
// the selection and of what is under the pointer, marks, the cursor. Cheap enough to be redrawn whenever the pointer moves.

import { context2d, fitCanvas } from './dom';
import { duration } from './format';
import type { Session } from './session';
import { listOf } from './store';
import type { Theme } from './theme';
import type { Bar, Timeline } from './timeline';

export interface ParentLine {
  readonly child: number;
  readonly parent: number;
  readonly points: readonly [number, number, number, number];
}

export interface CollectiveLine {
  readonly rows: number[];
  readonly points: readonly (readonly [number, number])[];
}

// With more events than this in view, lines of all would cover the bars: only those of the selection are drawn.
const kLinesUpTo = 2000;
const kMostLines = 4000;

export class Overlay {
  private readonly context: CanvasRenderingContext2D;
  private width = 1;
  private height = 1;
  private lines: { parents: ParentLine[]; collectives: CollectiveLine[] } = { parents: [], collectives: [] };

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly session: Session,
    private readonly timeline: Timeline,
  ) {
    this.context = context2d(canvas, false);
  }

  resize(width: number, height: number): void {
    this.width = width;
    this.height = height;
    fitCanvas(this.canvas, width, height);
  }

  /** The lines of the last drawing that `collectLines` found. */
  get drawn(): { parents: ParentLine[]; collectives: CollectiveLine[] } {
    return this.lines;
  }

  /** Called when the window, the layout or the selection changed; `draw` alone suffices for the pointer. */
  collectLines(): void {
    const rows = this.rowsOfLines();
    this.lines = {
      parents: this.session.showParents ? this.parentLines(rows) : [],
      collectives: this.session.showCollectives ? this.collectiveLines(rows) : [],
    };
  }

  /** The events whose lines are drawn: the selection with its relatives, or all in view where they are few. */
  private rowsOfLines(): Set<number> {
    const { session } = this;
    if (session.relatives !== null) {
      const { ancestors, descendants, peers } = session.relatives;
      return new Set([session.selection, ...ancestors, ...descendants.slice(0, kMostLines), ...peers]);
    }
    let count = 0;
    const spans = this.timeline.visibleTracks().map(({ track }) => this.timeline.placesInView(track));
    for (const [first, last] of spans) count += last - first;
    const rows = new Set<number>();
    if (count > kLinesUpTo) return rows;
    for (const [first, last] of spans) for (let at = first; at < last; at++) rows.add(session.layout.tracks.rows[at]);
    return rows;
  }

  private parentLines(rows: ReadonlySet<number>): ParentLine[] {
    const found: ParentLine[] = [];
    for (const child of rows) {
      const parent = this.session.store.parent[child];
      if (parent < 0 || found.length >= kMostLines) continue;
      const [below, above] = [this.timeline.barOf(child), this.timeline.barOf(parent)];
      if (below === null || above === null || !this.isNear(below, above)) continue;
      const x = Math.min(Math.max(below.x, above.x), above.x + above.width);
      const down = below.y >= above.y;
      const points = [x, down ? above.y + above.height : above.y, below.x, down ? below.y : below.y + below.height] as const;
      found.push({ child, parent, points });
    }
    return found;
  }

  private isNear(a: Bar, b: Bar): boolean {
    return Math.max(a.x + a.width, b.x + b.width) >= 0 && Math.min(a.x, b.x) <= this.width;
  }

  private collectiveLines(rows: ReadonlySet<number>): CollectiveLine[] {
    const { store } = this.session;
    const wanted = new Set<number>();
    for (const row of rows) if (store.collectives.of[row] >= 0) wanted.add(store.collectives.of[row]);
    const found: CollectiveLine[] = [];
    for (const collective of wanted) {
      if (found.length >= kMostLines) break;
      const bars = Array.from(listOf(store.collectives.rows, collective), (row) => this.timeline.barOf(row))
        .filter((bar): bar is Bar => bar !== null)
        .sort((a, b) => a.y - b.y);
      if (bars.length < 2) continue;
      found.push({ rows: bars.map((bar) => bar.row), points: bars.map((bar) => [bar.x, bar.y + bar.height / 2]) });
    }
    return found;
  }

  draw(theme: Theme): void {
    const { context } = this;
    const ratio = this.canvas.width / this.width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.drawLines(theme);
    this.drawOutlines(theme);
    this.drawMarks(theme);
    this.drawCursor(theme);
  }

  private drawLines(theme: Theme): void {
    const { context } = this;
    context.lineJoin = 'round';
    const path = new Path2D();
    for (const { points } of this.lines.parents) {
      path.moveTo(points[0], points[1]);
      path.lineTo(points[2], points[3]);
    }
    context.strokeStyle = theme.parentLine;
    context.lineWidth = 1.2;
    context.setLineDash([2, 2.5]);
    context.stroke(path);
    context.setLineDash([]);
    const red = new Path2D();
    const dots = new Path2D();
    for (const { points } of this.lines.collectives) {
      points.forEach(([x, y], index) => {
        if (index === 0) red.moveTo(x, y);
        else red.lineTo(x, y);
        dots.moveTo(x + 2.5, y);
        dots.arc(x, y, 2.5, 0, 7);
      });
    }
    context.strokeStyle = theme.halo;
    context.lineWidth = 3.5;
    context.stroke(red);
    context.strokeStyle = theme.collectiveLine;
    context.lineWidth = 1.5;
    context.stroke(red);
    context.fillStyle = theme.collectiveLine;
    context.fill(dots);
  }

  private outline(row: number, colour: string, width: number): void {
    const bar = this.timeline.barOf(row);
    if (bar === null || bar.x > this.width || bar.x + bar.width < 0) return;
    const left = Math.max(bar.x, -4);
    const right = Math.min(bar.x + bar.width, this.width + 4);
    this.context.strokeStyle = colour;
    this.context.lineWidth = width;
    this.context.strokeRect(left - 0.5, bar.y - 0.5, right - left + 1, bar.height + 1);
  }

  private drawOutlines(theme: Theme): void {
    const { hover, selection, relatives } = this.session;
    if (hover >= 0 && hover !== selection) this.outline(hover, theme.text, 1.2);
    if (selection < 0) return;
    for (const row of relatives?.ancestors ?? []) this.outline(row, theme.parentLine, 1.2);
    for (const row of relatives?.peers ?? []) if (row !== selection) this.outline(row, theme.collectiveLine, 1.2);
    this.outline(selection, theme.text, 2.2);
  }

  private drawMarks(theme: Theme): void {
    const { context } = this;
    context.font = '11px ui-sans-serif, system-ui, "DejaVu Sans", sans-serif';
    context.textBaseline = 'top';
    let before = NaN;
    for (const mark of this.session.marks) {
      const x = Math.round(this.timeline.xOf(mark)) + 0.5;
      if (x >= 0 && x <= this.width) {
        context.strokeStyle = theme.mark;
        context.lineWidth = 1;
        context.beginPath();
        context.moveTo(x, 0);
        context.lineTo(x, this.height);
        context.stroke();
        const label = Number.isNaN(before) ? '⚑' : `⚑ +${duration(mark - before)}`;
        context.fillStyle = theme.halo;
        context.fillRect(x + 2, 2, context.measureText(label).width + 6, 15);
        context.fillStyle = theme.mark;
        context.fillText(label, x + 5, 4);
      }
      before = mark;
    }
  }

  private drawCursor(theme: Theme): void {
    const x = Math.round(this.timeline.xOf(this.session.cursor)) + 0.5;
    if (!(x >= 0 && x <= this.width)) return;
    this.context.strokeStyle = theme.rule;
    this.context.lineWidth = 1;
    this.context.beginPath();
    this.context.moveTo(x, 0);
    this.context.lineTo(x, this.height);
    this.context.stroke();
  }
}
