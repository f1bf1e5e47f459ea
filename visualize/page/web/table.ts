// Tables of numbers as the server and the exported file write them: wire.go has the form.

export type Column = Float64Array | Uint32Array | Uint16Array | Uint8Array;

export interface Table {
  info: unknown;
  columns: Record<string, Column>;
}

interface Header {
  info: unknown;
  columns: { name: string; type: "f64" | "u32" | "u16" | "u8"; rows: number }[];
}

const make = {
  f64: (b: ArrayBuffer, at: number, n: number): Column => new Float64Array(b, at, n),
  u32: (b: ArrayBuffer, at: number, n: number): Column => new Uint32Array(b, at, n),
  u16: (b: ArrayBuffer, at: number, n: number): Column => new Uint16Array(b, at, n),
  u8: (b: ArrayBuffer, at: number, n: number): Column => new Uint8Array(b, at, n),
};

/** decode reads a table; the buffer stays in use by its columns. */
export function decode(buffer: ArrayBuffer): Table {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))) as Header;
  const columns: Record<string, Column> = {};
  let at = 4 + length;
  for (const c of header.columns) {
    const column = make[c.type](buffer, at, c.rows);
    columns[c.name] = column;
    at += Math.ceil(column.byteLength / 8) * 8;
  }
  return { info: header.info, columns };
}
