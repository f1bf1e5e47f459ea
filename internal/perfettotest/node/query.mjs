// query.mjs ENGINE TRACE SQL...            runs each SQL on the trace; ENGINE is the folder of the trace processor's engine
// query.mjs --check ENGINE TRACE [SQL...]  also prints what the importer complained of; exit status 1 if it did
// --strict: as --check, and counters of severity info for skipped or odd packets count too, and so does bad framing
// --json: one JSON object per row
import { openSync, readSync, closeSync, fstatSync } from 'node:fs';
import { TraceProcessor } from './processor.mjs';

const args = process.argv.slice(2), opt = {};
while (args[0]?.startsWith('--')) opt[args.shift().slice(2)] = true;
if (opt.strict) opt.check = true;
const [engine, trace, ...sqls] = args;
if (!trace || (!sqls.length && !opt.check)) {
  console.error('usage: query.mjs [--check|--strict] [--json] ENGINE TRACE [SQL...]'); process.exit(2);
}
const tp = await TraceProcessor.open(engine);

const show = (v) => v === null ? '[NULL]' : v instanceof Uint8Array ? `<${v.length} bytes>` : String(v);
function print({ columns, rows }) {
  if (opt.json) {
    for (const r of rows) console.log(JSON.stringify(Object.fromEntries(r.map((v, i) =>
      [columns[i], typeof v === 'bigint' ? v.toString() : v instanceof Uint8Array ? Buffer.from(v).toString('base64') : v]))));
    return;
  }
  const t = [columns, columns.map(() => ''), ...rows.map((r) => r.map(show))];
  const w = columns.map((_, i) => Math.max(...t.map((r) => r[i].length)));
  t[1] = w.map((n) => '-'.repeat(n));
  for (const r of t) console.log(r.map((c, i) => c.padEnd(w[i])).join('  ').trimEnd());
  console.log(`(${rows.length} rows)`);
}
// The importer says nothing of a file cut short or of junk at its end. A trace is a sequence of
// (tag 0x0a, length, packet) and nothing else; say where a file stops being one.
function framing(file) {
  const fd = openSync(file, 'r'), size = fstatSync(fd).size, b = Buffer.alloc(11);
  try {
    for (let at = 0, n = 0; at < size; n++) {
      const got = readSync(fd, b, 0, 11, at);
      if (b[0] !== 0x0a) return `byte ${at}: not a packet (tag 0x${b[0].toString(16)}), after ${n} packets`;
      let len = 0, i = 1;
      for (let mul = 1; ; mul *= 128) {
        if (i >= got) return `byte ${at}: a packet's length is cut short, after ${n} packets`;
        const c = b[i++]; len += (c & 127) * mul;
        if (c < 128) break;
      }
      if (at + i + len > size) return `byte ${at}: a packet of ${len} bytes runs past the end of the file (${size}), after ${n} packets`;
      at += i + len;
    }
  } finally { closeSync(fd); }
  return size ? '' : 'the file is empty';
}
let bad = 0;
if (opt.strict) { const e = framing(trace); if (e) { console.log('framing: ' + e); bad = 1; } }
const failed = tp.load(trace);
for (const e of failed) { console.error('import error: ' + e); bad = 1; }
if (failed.length) process.exit(1);      // after a failed import nothing can be asked of the engine
if (opt.check) {
  const s = tp.query(`select name, idx, severity, source, value, description from stats
    where severity in ('error','data_loss') and value > 0 order by name, idx`);
  if (s.rows.length) { bad = 1; console.log('stats:'); print(s); }
  // Counters of severity 'info' that are not plain measurements: skipped or unparsable packets, ends
  // without starts and the like. They make --strict fail.
  const i = tp.query(`select name, idx, severity, source, value, description from stats
    where severity = 'info' and value > 0 and name not glob '*_duration_ns' and name not glob 'traced_*'
      and name not glob 'filter_*' and name not glob 'ftrace_cpu_*' and name <> 'clock_sync_cache_miss' order by name, idx`);
  if (i.rows.length) { console.log('stats (info):'); print(i); if (opt.strict) bad = 1; }
  const log = tp.log.join('\n').split('\n').filter((l) => l.trim() && !/__syscall_mprotect|^\r?\s*Loading trace /.test(l));
  if (log.length) { console.log('engine log:'); for (const l of log) console.log('  ' + l); }
  if (!bad && !i.rows.length) console.log('check: no import error, nothing amiss in stats');
}
for (const q of sqls) {
  try { print(tp.query(q)); } catch (e) { console.error(e.message); bad = 1; }
}
process.exitCode = bad;
