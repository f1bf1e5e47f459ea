// The sql command.

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/tables"
	"github.com/spf13/cobra"
)

func newSQL() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "sql [flags] FILE… 'select …'",
		Short: "Query recordings with DuckDB",
		Long: `sql runs a query over one or many recordings, with DuckDB's command duckdb, which must be installed. The tables are those of
hbtrace export --parquet (docs/reference/tables.md): events, waits, profile, edges, chains, stacks, frames, functions,
threads, processes, recordings. A FILE is a recording, or a directory that export --parquet has written.`,
		Example: `  hbtrace sql hbtrace.hbt "select object_name, sum(total_ns)/1e9 as s from edges where lock group by 1 order by 2 desc"
  hbtrace sql fleet/ "select host, count(*) from recordings group by 1"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("sql: name a recording and a query: hbtrace sql hbtrace.hbt 'select * from recordings'")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return query(cmd, args[:len(args)-1], args[len(args)-1], asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the rows as JSON")
	return c
}

// query makes tables of what are recordings, a view over each table, and hands the question to duckdb.
func query(cmd *cobra.Command, files []string, sql string, asJSON bool) error {
	engine, err := exec.LookPath("duckdb")
	if err != nil {
		return errors.New("sql: duckdb is not installed: get it from duckdb.org, or read the tables of hbtrace export --parquet with any other engine")
	}
	var dirs, recordings []string
	for _, f := range files {
		if st, err := os.Stat(f); err == nil && st.IsDir() {
			dirs = append(dirs, f)
		} else {
			recordings = append(recordings, f)
		}
	}
	if len(recordings) > 0 {
		dir, err := os.MkdirTemp("", "hbtrace-sql-")
		if err != nil {
			return fmt.Errorf("sql: %w", err)
		}
		defer os.RemoveAll(dir)
		err = withRecordings(recordings, func(srcs []trace.Source) error {
			for _, src := range srcs {
				if err := tables.Write(dir, src); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		dirs = append(dirs, dir)
	}
	views, err := viewsOver(dirs)
	if err != nil {
		return err
	}
	run := exec.CommandContext(cmd.Context(), engine, "-cmd", views, "-c", sql)
	if asJSON {
		run.Args = append(run.Args, "-json")
	}
	run.Stdout, run.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := run.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return errors.New("sql: duckdb did not accept the query")
		}
		return fmt.Errorf("sql: %s: %w", engine, err)
	}
	return nil
}

// viewsOver makes each table one view over all directories.
func viewsOver(dirs []string) (string, error) {
	var sql strings.Builder
	for _, table := range tables.Names {
		var globs []string
		for _, dir := range dirs {
			glob := filepath.Join(dir, table, "*.parquet")
			if found, err := filepath.Glob(glob); err != nil || len(found) == 0 {
				return "", fmt.Errorf("sql: %s has no table %s: name a recording, or a directory that hbtrace export --parquet has written", dir, table)
			}
			globs = append(globs, "'"+strings.ReplaceAll(glob, "'", "''")+"'")
		}
		fmt.Fprintf(&sql, "create view %s as select * from read_parquet([%s]);\n", table, strings.Join(globs, ", "))
	}
	return sql.String(), nil
}
