// Package duckdbtest runs SQL in a real DuckDB, for tests of tables.
//
// DuckDB is its official node package, installed once with npm into the user's cache directory; nothing is installed
// globally and no install script runs. Where node or npm is missing, or the package cannot be had, tests skip and say why.
package duckdbtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

const (
	npmPackage = "@duckdb/node-api"
	version    = "1.5.6-r.1"
)

// script reads a list of statements from standard input and prints the rows of each, every value as text.
const script = `
const { DuckDBInstance } = require(process.argv[1]);
(async () => {
  const db = await (await DuckDBInstance.create(':memory:')).connect();
  const answers = [];
  for (const sql of JSON.parse(require('fs').readFileSync(0, 'utf8'))) {
    const rows = (await db.runAndReadAll(sql)).getRows();
    answers.push(rows.map(row => row.map(v => v === null ? 'NULL' : String(v))));
  }
  console.log(JSON.stringify(answers));
})().catch(err => { console.error(String(err.message ?? err)); process.exit(1); });
`

var install = sync.OnceValues(func() (dir string, err error) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", fmt.Errorf("node is not installed")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, "hbtrace-test", "duckdb-"+version)
	module := filepath.Join(dir, "node_modules", npmPackage)
	if _, err := os.Stat(filepath.Join(dir, "complete")); err == nil {
		return module, nil
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return "", fmt.Errorf("npm is not installed")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	cmd := exec.Command("npm", "install", "--prefix", dir, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", npmPackage+"@"+version)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install %s: %w: %s", npmPackage, err, bytes.TrimSpace(out))
	}
	return module, os.WriteFile(filepath.Join(dir, "complete"), nil, 0o644)
})

// Query runs statements one after the other in one empty database and returns the rows of each as text; NULL is "NULL".
func Query(t testing.TB, statements ...string) [][][]string {
	t.Helper()
	module, err := install()
	if err != nil {
		t.Skipf("needs DuckDB: %v", err)
	}
	in, err := json.Marshal(statements)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "-e", script, "--", module)
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("DuckDB: %v: %s", err, stderr.Bytes())
	}
	var answers [][][]string
	if err := json.Unmarshal(out, &answers); err != nil {
		t.Fatalf("DuckDB's answer: %v", err)
	}
	return answers
}

// command is a stand-in for DuckDB's own command line around the real engine: -cmd SQL, -c SQL and -json.
const command = `
const args = process.argv.slice(2), statements = [];
let asJSON = false;
for (let i = 0; i < args.length; i++) {
  if (args[i] === '-cmd' || args[i] === '-c') statements.push(args[++i]);
  else if (args[i] === '-json') asJSON = true;
  else { console.error('unknown option ' + args[i]); process.exit(1); }
}
const { DuckDBInstance } = require(process.argv[1]);
(async () => {
  const db = await (await DuckDBInstance.create(':memory:')).connect();
  for (const sql of statements.slice(0, -1)) await db.run(sql);
  const rows = await db.runAndReadAll(statements.at(-1));
  if (asJSON) console.log(JSON.stringify(rows.getRowObjectsJson()));
  else for (const row of rows.getRows()) console.log(row.map(String).join('|'));
})().catch(err => { console.error(String(err.message ?? err)); process.exit(1); });
`

// Command makes an executable named duckdb and returns its directory.
func Command(t testing.TB) string {
	t.Helper()
	module, err := install()
	if err != nil {
		t.Skipf("needs DuckDB: %v", err)
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "duckdb.js")
	if err := os.WriteFile(script, []byte(command), 0o644); err != nil {
		t.Fatal(err)
	}
	sh := fmt.Sprintf("#!/bin/sh\nexec node -e \"$(cat '%s')\" -- '%s' \"$@\"\n", script, module)
	if err := os.WriteFile(filepath.Join(dir, "duckdb"), []byte(sh), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
