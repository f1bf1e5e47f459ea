// The search: part of a name, or in quotes a whole name.

import { whole } from "./format.js";

export type Finder = (name: string) => boolean;

/** finder says which names a search text means; null where nothing is searched for. "work" in quotes is that name and no other. */
export function finder(find: string): Finder | null {
  if (find === "") return null;
  const name = exact(find);
  if (name !== "") return (n) => n === name;
  const needle = find.toLowerCase();
  return (n) => n.toLowerCase().includes(needle);
}

/** exactly is the search text for one name. */
export function exactly(name: string): string {
  return `"${name}"`;
}

/** shown is a search text as a status tells it. */
export function shown(find: string): string {
  return exact(find) !== "" ? whole(exact(find)) : `names with “${whole(find)}”`;
}

/** exact is the one name that a search text means; "" where it means parts of names. */
export function exact(find: string): string {
  return find.length > 2 && find.startsWith('"') && find.endsWith('"') ? find.slice(1, -1) : "";
}
