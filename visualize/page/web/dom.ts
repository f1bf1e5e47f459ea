// Elements. Names come from the recorded program and are never trusted: text is only ever set as text, and nothing in
// this page parses a string as markup.

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, unknown> & { class?: string; on?: Record<string, (e: never) => void>; css?: Record<string, string> };

/** h makes an element. on: listeners; css: style properties; a boolean: an attribute without a value. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  dress(e, props);
  add(e, children);
  return e;
}

/** s makes an SVG element. */
export function s(tag: string, props: Props = {}, ...children: Child[]): SVGElement {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  dress(e, props);
  add(e, children);
  return e;
}

function dress(e: HTMLElement | SVGElement, props: Props): void {
  for (const [k, v] of Object.entries(props)) {
    if (k === "on") for (const [name, f] of Object.entries(v as object)) e.addEventListener(name, f as EventListener);
    else if (k === "css") for (const [name, x] of Object.entries(v as object)) e.style.setProperty(name, x as string);
    else if (v === true) e.setAttribute(k, "");
    else if (v !== false && v !== undefined && v !== null) e.setAttribute(k, String(v));
  }
}

function add(e: Element, children: Child[]): void {
  for (const c of children) {
    if (c !== null && c !== undefined && c !== false) e.append(typeof c === "number" ? String(c) : c);
  }
}

/** fill replaces what an element holds. */
export function fill(e: Element, ...children: Child[]): void {
  e.replaceChildren();
  add(e, children);
}

/** Canvas is a canvas that follows its element's size and the screen's density. */
export class Canvas {
  readonly element = h("canvas");
  readonly g: CanvasRenderingContext2D;
  width = 0; // CSS pixels
  height = 0;
  density = 1;

  constructor(label: string) {
    this.element.setAttribute("role", "img");
    this.element.setAttribute("aria-label", label);
    this.g = this.element.getContext("2d")!;
  }

  /** fit makes the canvas as large as it is shown; false where it has no size. */
  fit(width: number, height: number): boolean {
    this.density = Math.min(3, window.devicePixelRatio || 1);
    const w = Math.max(1, Math.round(width * this.density));
    const t = Math.max(1, Math.round(height * this.density));
    if (this.element.width !== w || this.element.height !== t) {
      this.element.width = w;
      this.element.height = t;
      this.element.style.width = `${width}px`;
      this.element.style.height = `${height}px`;
    }
    this.width = width;
    this.height = height;
    this.g.setTransform(this.density, 0, 0, this.density, 0, 0);
    return width > 0 && height > 0;
  }
}

/** table makes an HTML table; right are the columns of numbers. */
export function table(head: string[], rows: Child[][], right: number[], caption: string): HTMLTableElement {
  const cls = (i: number): string | undefined => (right.includes(i) ? "num" : undefined);
  return h(
    "table",
    {},
    h("caption", { class: "hidden" }, caption),
    h("thead", {}, h("tr", {}, ...head.map((x, i) => h("th", { scope: "col", class: cls(i) }, x)))),
    h("tbody", {}, ...rows.map((r) => h("tr", {}, ...r.map((x, i) => h("td", { class: cls(i) }, x))))),
  );
}

// Measuring text costs more than writing it, and the same names are written frame after frame.
const widths = new Map<string, number>();
const mostWidths = 20_000;

/** widthOf is the width of a text in the font of the canvas. */
export function widthOf(g: CanvasRenderingContext2D, text: string): number {
  const key = g.font + text;
  let w = widths.get(key);
  if (w === undefined) {
    if (widths.size >= mostWidths) widths.clear();
    w = g.measureText(text).width;
    widths.set(key, w);
  }
  return w;
}

/** ellipsis cuts text to a width on a canvas, in the middle of nothing: the end goes. */
export function ellipsis(g: CanvasRenderingContext2D, text: string, width: number): string {
  if (width < 14) return "";
  const rough = Math.floor(width / 3);
  let t = text.length > rough ? text.slice(0, rough) : text;
  if (t === text && widthOf(g, t) <= width) return t;
  while (t.length > 1 && widthOf(g, t + "…") > width) t = t.slice(0, Math.max(1, Math.floor(t.length * 0.9) - 1));
  return t.length > 1 ? t + "…" : "";
}
