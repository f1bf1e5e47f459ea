// Colours. They are in the style sheet, for both themes: those of the states are Okabe and Ito's, which stay apart under the
// common colour blindnesses; what is often idleness is paler, in the dark darker, so that what costs stands out.
// States have text and patterns too: colour never says anything alone.

export class Look {
  constructor(private state: number, readonly name: string, readonly brief: string) {}

  /** fill is the colour for a canvas; for elements it is css, which follows the theme. */
  get fill(): string { return ink(`s${this.state}`); }
  get css(): string { return `var(--s${this.state})`; }
  /** text is for what is written on it. */
  get text(): string { return ink(`t${this.state}`); }
}

/** looks by number of state: piece.go. */
export const looks: Look[] = ([
  ["unknown", "unknown"],
  ["running", "running"],
  ["off CPU: ready, or waits too short to record", "ready / short waits"],
  ["waiting for a lock", "lock"],
  ["waiting to be woken by a thread (condition, semaphore, join)", "wake-up"],
  ["reading or writing", "I/O"],
  ["waiting for I/O to be ready", "polling"],
  ["waiting for a process or message", "process"],
  ["sleeping", "sleep"],
  ["runnable without a CPU", "runnable"],
] as const).map(([name, brief], i) => new Look(i, name, brief));

export const stateCount = looks.length;
export const running = 1;
export const off = 2;
export const locked = 3;
export const signaled = 4;
export const ready = 9;

/** order in which states are stacked within a column, from the bottom. */
export const stacking = [1, 9, 3, 5, 4, 7, 6, 8, 2];

const night = matchMedia("(prefers-color-scheme: dark)");
let isDark = night.matches;

/** themed is to be called when the theme may have changed. */
export function themed(): void {
  const t = document.documentElement.dataset.theme;
  isDark = t === "dark" || (t !== "light" && night.matches);
}

/** dark says whether the page is dark now. */
export function dark(): boolean {
  return isDark;
}

// Colours are needed thousands of times a frame, and finding one out costs as much as drawing what it is for. They
// change with the theme alone.
const inks = [new Map<string, string>(), new Map<string, string>()];
const ofFrames = [new Map<string, string>(), new Map<string, string>()];

/** ink is a colour of the style sheet. */
export function ink(name: string): string {
  const known = inks[Number(dark())];
  let c = known.get(name);
  if (c === undefined) {
    c = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    known.set(name, c);
  }
  return c;
}

/** pack makes a colour a pixel of an ImageData seen as Uint32Array (little-endian: ABGR). */
export function pack(hex: string, alpha = 255): number {
  const n = parseInt(hex.slice(1), 16);
  return ((alpha << 24) | ((n & 255) << 16) | (n & 0xff00) | (n >> 16)) >>> 0;
}

function hash(s: string): number {
  let x = 2166136261;
  for (let i = 0; i < s.length && i < 200; i++) x = Math.imul(x ^ s.charCodeAt(i), 16777619);
  return x >>> 0;
}

// Modules take these in the order in which the recording meets them: hues that no state has, the program's own first. The
// system's libraries, and the recorder's, are all in one grey, so that what is the program's stands out.
const hues = [262, 24, 184, 330, 92, 224, 290, 48, 150, 352];
const hueOf = new Map<string, number>();
const system = /^(agent|libc|libpthread|libm|libdl|librt|ld|ld-linux.*|libstdc\+\+|libgcc_s|linux-vdso)[.-]|^\[/;

/** meet gives a module its colour. */
export function meet(module: string | undefined): void {
  const m = module ?? "";
  if (m !== "" && !system.test(m) && !hueOf.has(m)) hueOf.set(m, hues[hueOf.size % hues.length]);
}

/** ofFrame is a function's colour: the hue says which module it is from, the shade tells neighbours apart. */
export function ofFrame(name: string, module: string | undefined): string {
  const known = ofFrames[Number(dark())];
  const key = `${module}\0${name}`;
  let c = known.get(key);
  if (c === undefined) {
    const hue = hueOf.get(module ?? "");
    const h = (hue ?? 214) + (hash(name) % 9) * 2 - 8;
    const l = (hash(name) >>> 8) % 5;
    const s = hue === undefined ? 12 : dark() ? 22 : 58;
    c = dark() ? `hsl(${h} ${s}% ${34 + l * 2.2}%)` : `hsl(${h} ${s}% ${79 + l * 2}%)`;
    known.set(key, c);
  }
  return c;
}
