// Numbers for people: three digits that count, and a unit.

const units: [number, string][] = [
  [3600e9, "h"],
  [60e9, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

function three(x: number): string {
  const a = Math.abs(x);
  return a >= 100 ? x.toFixed(0) : a >= 10 ? x.toFixed(1) : x.toFixed(2);
}

/** duration of ns. */
export function duration(ns: number): string {
  if (!Number.isFinite(ns)) return "?";
  if (ns === 0) return "0 s";
  for (const [size, unit] of units) if (Math.abs(ns) >= size * 0.9995) return `${three(ns / size)} ${unit}`;
  return `${ns.toFixed(1)} ns`;
}

/** between is a duration that is known to lie between two; "" where that says nothing about a time of `all` ns. */
export function between(least: number, most: number, all: number): string {
  if (least <= 0 && most >= all) return "";
  if (most - least <= most / 50) return duration(most);
  return least <= 0 ? `at most ${duration(most)}` : `${duration(least)} to ${duration(most)}`;
}

export function bytes(n: number): string {
  for (const [size, unit] of [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]] as [number, string][]) {
    if (Math.abs(n) >= size) return `${three(n / size)} ${unit}`;
  }
  return `${Math.round(n)} B`;
}

export function count(n: number): string {
  return Math.round(n).toLocaleString("en-US");
}

export function percent(part: number, whole: number): string {
  if (whole <= 0) return "–";
  const p = (100 * part) / whole;
  if (p > 0 && p < 0.1) return "<0.1 %";
  return `${p < 10 ? p.toFixed(1) : p.toFixed(0)} %`;
}

/** steps gives round marks for an axis from a to b, about one in `every` of its width. */
export function steps(a: number, b: number, most: number): { step: number; first: number } {
  const raw = (b - a) / Math.max(1, most);
  const p = 10 ** Math.floor(Math.log10(Math.max(raw, 1e-3)));
  const step = [1, 2, 5, 10].map((m) => m * p).find((x) => x >= raw)!;
  return { step, first: Math.ceil(a / step) * step };
}

/** moment names a time on an axis whose marks are step apart. */
export function moment(ns: number, step: number): string {
  for (const [size, unit] of units.slice(2)) {
    if (step >= size || size === 1) {
      const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
      return `${(ns / size).toFixed(digits)} ${unit}`;
    }
    if (step * 1000 > size && Math.abs(ns) >= size) {
      const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
      return `${(ns / size).toFixed(digits)} ${unit}`;
    }
  }
  return `${ns} ns`;
}

const shorts = new Map<string, string>();

/** short leaves out of a function's name what one can do without where there is little room. */
export function short(name: string): string {
  let s = shorts.get(name);
  if (s === undefined) {
    if (shorts.size >= 20_000) shorts.clear();
    s = shortened(name);
    shorts.set(name, s);
  }
  return s;
}

function shortened(name: string): string {
  if (name.length > 400) return name.slice(0, 400);
  const address = /^(\S{13,})(\+0x[0-9a-f]+)$/.exec(name); // of a module: where in it says more than the module's whole name
  if (address) return `${address[1].slice(0, 11)}…${address[2]}`;
  let n = name.replace(/::h[0-9a-f]{16}$/, "");
  let out = "";
  let depth = 0;
  for (const c of n) {
    if (c === "<" && !/operator$/.test(out)) depth++;
    if (depth === 0) out += c;
    if (c === ">" && depth > 0 && --depth === 0) out += "<…>";
  }
  n = depth === 0 ? out : n;
  const open = n.indexOf("(");
  if (open > 0 && !n.startsWith("(") && n.endsWith(")") && !n.includes(")::")) n = n.slice(0, open);
  return n;
}

/** whole trims a name that is to be shown in full but may be of any length. */
export function whole(name: string): string {
  return name.length > 300 ? name.slice(0, 300) + "…" : name;
}
