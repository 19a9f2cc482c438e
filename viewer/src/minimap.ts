// The whole recording in a strip: how much of what type happens when, and which part is in the window. Below it the ruler.

import { context2d, fitCanvas } from './dom';
import { duration, ticks } from './format';
import { kKinds } from './events';
import type { Session } from './session';
import { kTickEvery, type Timeline } from './timeline';
import type { Theme } from './theme';

const kColumns = 512;
const kFont = '11px ui-sans-serif, system-ui, "DejaVu Sans", sans-serif';

/** Busy time by column and type; the columns lie side by side over the whole recording. */
export function density(session: Session, columns: number): Float64Array[] {
  const { start, end, type } = session.layout.tracks;
  const { first, last } = session.store;
  const scale = columns / Math.max(last - first, 1);
  const found: Float64Array[] = kKinds.map(() => new Float64Array(columns));
  const index = new Int8Array(256).fill(kKinds.length - 1);
  kKinds.forEach((kind, at) => (index[kind.type] = at));
  const whole: Float64Array[] = kKinds.map(() => new Float64Array(columns + 1));
  for (let at = 0; at < start.length; at++) {
    const from = (start[at] - first) * scale;
    const to = (end[at] - first) * scale;
    const [left, right] = [Math.min(Math.floor(from), columns - 1), Math.min(Math.floor(to), columns - 1)];
    const kind = index[type[at]];
    if (left >= right) {
      found[kind][left] += Math.max(to - from, 0.02);
      continue;
    }
    found[kind][left] += left + 1 - from;
    found[kind][right] += Math.min(to - right, 1);
    whole[kind][left + 1]++;
    whole[kind][right]--;
  }
  found.forEach((one, kind) => {
    let open = 0;
    for (let column = 0; column < columns; column++) one[column] += open += whole[kind][column];
  });
  return found;
}

export class Minimap {
  private readonly context: CanvasRenderingContext2D;
  private readonly strip = document.createElement('canvas');
  private stale = true;
  private width = 1;
  private height = 1;

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly session: Session,
  ) {
    this.context = context2d(canvas, true);
    this.listenToPointer();
  }

  resize(width: number, height: number): void {
    [this.width, this.height] = [Math.max(width, 1), Math.max(height, 1)];
    fitCanvas(this.canvas, width, height);
    this.stale = true;
  }

  invalidate(): void {
    this.stale = true;
  }

  private xOf(time: number): number {
    const { first, last } = this.session.store;
    return ((time - first) / Math.max(last - first, 1)) * this.width;
  }

  private timeAt(x: number): number {
    const { first, last } = this.session.store;
    return first + (x / this.width) * Math.max(last - first, 1);
  }

  private drawStrip(theme: Theme): void {
    fitCanvas(this.strip, this.width, this.height);
    const context = context2d(this.strip, true);
    const ratio = this.strip.width / this.width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = `#${theme.name === 'light' ? 'f7f8fa' : '181d23'}`;
    context.fillRect(0, 0, this.width, this.height);
    const columns = Math.min(kColumns, Math.ceil(this.width / 2));
    const found = density(this.session, columns);
    let most = 0;
    for (let column = 0; column < columns; column++) most = Math.max(most, found.reduce((sum, one) => sum + one[column], 0));
    const wide = this.width / columns;
    for (let column = 0; column < columns; column++) {
      let top = this.height;
      const sum = found.reduce((total, one) => total + one[column], 0);
      if (sum === 0) continue;
      // A square root, so that a quiet part beside a busy one can be seen.
      const high = Math.sqrt(sum / most) * (this.height - 6);
      found.forEach((one, kind) => {
        if (one[column] === 0) return;
        const part = (one[column] / sum) * high;
        context.fillStyle = kKinds[kind][theme.name];
        context.fillRect(column * wide, top - part, wide + 0.3, part);
        top -= part;
      });
    }
    this.stale = false;
  }

  draw(theme: Theme): void {
    if (this.stale) this.drawStrip(theme);
    const { context } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.strip, 0, 0);
    const ratio = this.canvas.width / this.width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const left = Math.max(this.xOf(this.session.from), 0);
    const right = Math.min(Math.max(this.xOf(this.session.to), left + 3), this.width);
    context.fillStyle = theme.name === 'light' ? 'rgba(243,245,247,0.78)' : 'rgba(15,18,22,0.72)';
    context.fillRect(0, 0, left, this.height);
    context.fillRect(right, 0, this.width - right, this.height);
    context.strokeStyle = theme.parentLine;
    context.lineWidth = 1.5;
    context.strokeRect(left + 0.75, 0.75, Math.max(right - left - 1.5, 1), this.height - 1.5);
    context.fillStyle = theme.mark;
    for (const mark of this.session.marks) context.fillRect(Math.round(this.xOf(mark)), 0, 1.5, this.height);
  }

  /** A press outside of the window moves it there; then it follows the pointer. */
  private listenToPointer(): void {
    let grip = NaN;
    const move = (event: PointerEvent): void => {
      if (Number.isNaN(grip)) return;
      const middle = this.timeAt(event.offsetX) + grip;
      const half = (this.session.to - this.session.from) / 2;
      this.session.setWindow(middle - half, middle + half);
    };
    this.canvas.addEventListener('pointerdown', (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      const time = this.timeAt(event.offsetX);
      const inside = time >= this.session.from && time <= this.session.to;
      grip = inside ? (this.session.from + this.session.to) / 2 - time : 0;
      move(event);
    });
    this.canvas.addEventListener('pointermove', move);
    for (const name of ['pointerup', 'pointercancel'] as const) {
      this.canvas.addEventListener(name, () => (grip = NaN));
    }
    this.canvas.addEventListener('dblclick', () => this.session.fitAll());
  }
}

export class Ruler {
  private readonly context: CanvasRenderingContext2D;
  private width = 1;
  private height = 1;

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly session: Session,
    private readonly timeline: Timeline,
  ) {
    this.context = context2d(canvas, false);
  }

  resize(width: number, height: number): void {
    [this.width, this.height] = [Math.max(width, 1), height];
    fitCanvas(this.canvas, width, height);
  }

  draw(theme: Theme): void {
    const { context, session } = this;
    const ratio = this.canvas.width / this.width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = kFont;
    context.textBaseline = 'middle';
    context.fillStyle = theme.muted;
    for (const tick of ticks(session.from, session.to, this.width / kTickEvery)) {
      const x = Math.round(this.timeline.xOf(tick.time));
      context.fillRect(x, this.height - 6, 1, 6);
      context.fillText(tick.label, x + 5, this.height / 2);
    }
    this.drawCursor(theme);
  }

  private drawCursor(theme: Theme): void {
    const x = this.timeline.xOf(this.session.cursor);
    if (!(x >= 0 && x <= this.width)) return;
    const { context } = this;
    const since = this.session.marks.filter((mark) => mark <= this.session.cursor).pop();
    const label = since === undefined ? duration(this.session.cursor) || '0 ns' : `⚑ +${duration(this.session.cursor - since) || '0 ns'}`;
    const wide = context.measureText(label).width + 10;
    const left = Math.min(Math.max(x - wide / 2, 0), this.width - wide);
    context.fillStyle = theme.text;
    context.fillRect(left, 2, wide, this.height - 5);
    context.fillStyle = theme.name === 'light' ? '#ffffff' : '#14181d';
    context.fillText(label, left + 5, this.height / 2);
  }
}
