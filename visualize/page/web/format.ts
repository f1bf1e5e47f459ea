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

/** pythonic are the names that Python gives to code without one: no template arguments. */
const pythonic = /<(module|lambda|listcomp|dictcomp|setcomp|genexpr|locals)>/;

function shortened(name: string): string {
  if (name.length > 400) return name.slice(0, 400);
  if (pythonic.test(name)) return name;
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
  return parts(bare(n));
}

/** ends are closing brackets by opening ones. */
const ends: Record<string, string> = { "(": ")", "{": "}", "[": "]", "<": ">" };

/** closing is the index behind the bracket that closes the one at n[i]; -1 where none does. */
function closing(n: string, i: number): number {
  const open: string[] = [];
  for (; i < n.length; i++) {
    if (ends[n[i]]) open.push(ends[n[i]]);
    else if (n[i] === open[open.length - 1] && open.pop() && open.length === 0) return i + 1;
  }
  return -1;
}

/** bare leaves out a function's parameters and what follows them, and no brackets that are part of its name. */
function bare(n: string): string {
  for (let i = 0; i < n.length; i++) {
    if (n.startsWith("operator", i)) {
      i += /^operator(\(\)|[-<>=!+*/%^&|~,[\]]*)/.exec(n.slice(i))![0].length - 1;
    } else if (ends[n[i]]) {
      const end = closing(n, i);
      if (end < 0) return n;
      if (n[i] === "(" && i > 0 && n[i - 1] !== ":" && !n.startsWith("::", end)) return n.slice(0, i);
      i = end - 1;
    }
  }
  return n;
}

const longestName = 36;

/** parts leaves out the middle ones of a long name's parts: a::…::y::z. The last says most, and the first whose it is. */
function parts(n: string): string {
  if (n.length <= longestName) return n;
  const all: string[] = [];
  let from = 0;
  for (let i = 0; i < n.length; i++) {
    const end = ends[n[i]] && !n.startsWith("operator", Math.max(0, i - 8)) ? closing(n, i) : 0;
    if (end > 0) {
      i = end - 1;
    } else if (n.startsWith("::", i)) {
      all.push(n.slice(from, i));
      from = i + 2;
      i++;
    }
  }
  all.push(n.slice(from));
  let out = n;
  for (let skip = 1; out.length > longestName && skip < all.length - 1; skip++) out = [all[0], "…", ...all.slice(skip + 1)].join("::");
  return out;
}

/** whole trims a name that is to be shown in full but may be of any length. */
export function whole(name: string): string {
  return name.length > 300 ? name.slice(0, 300) + "…" : name;
}
