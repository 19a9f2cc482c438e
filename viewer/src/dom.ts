// Making elements. Text from a recording goes in as text and never as markup: there is no innerHTML in this viewer, and
// test/source.test.ts looks that there is none.

type Attributes = Readonly<Record<string, string>>;

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function button(label: string, title: string, press: () => void, attributes: Attributes = {}): HTMLButtonElement {
  const element = make('button', { type: 'button', title, 'aria-label': title, ...attributes }, label);
  element.addEventListener('click', press);
  return element;
}

export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found;
}

/** A canvas with as many pixels as its box has on this screen. True when that changed. */
export function fitCanvas(canvas: HTMLCanvasElement, width: number, height: number): boolean {
  const ratio = window.devicePixelRatio || 1;
  const wide = Math.max(1, Math.round(width * ratio));
  const high = Math.max(1, Math.round(height * ratio));
  if (canvas.width === wide && canvas.height === high) return false;
  canvas.width = wide;
  canvas.height = high;
  return true;
}

export function context2d(canvas: HTMLCanvasElement, opaque: boolean): CanvasRenderingContext2D {
  const context = canvas.getContext('2d', { alpha: !opaque });
  if (context === null) throw new Error('this browser draws no canvas');
  return context;
}
