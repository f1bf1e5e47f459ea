// Reads a profile with the Firefox Profiler's own code, which brings it up to its present version, and prints what came of
// it: milliseconds by thread and function, and markers by thread and name.
import { readFileSync } from "fs";
import { unserializeProfileOfArbitraryFormat } from "firefox-profiler/profile-logic/process-profile";

async function read(path: string) {
  const p: any = await unserializeProfileOfArbitraryFormat(readFileSync(path).buffer, path);
  const s = p.shared;
  const self: Record<string, number> = {};
  const markers: Record<string, number> = {};
  const add = (to: Record<string, number>, key: string, n: number) => { to[key] = (to[key] ?? 0) + n; };
  for (const t of p.threads) {
    for (let i = 0; i < t.samples.length; i++) {
      const stack = t.samples.stack[i];
      const name = stack === null ? "" : s.stringArray[s.funcTable.name[s.frameTable.func[s.stackTable.frame[stack]]]];
      add(self, `${t.name} ${name}`, t.samples.weight[i]);
    }
    for (let i = 0; i < t.markers.length; i++) add(markers, `${t.name} ${s.stringArray[t.markers.name[i]]}`, 1);
  }
  console.log(JSON.stringify({ version: p.meta.preprocessedProfileVersion, self, markers }));
}

read(process.argv[2]).catch((e) => {
  console.error(e);
  process.exit(1);
});
