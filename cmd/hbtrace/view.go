// The view command.

package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/hbtrace/hbtrace/visualize/page"
	"github.com/hbtrace/hbtrace/visualize/perfetto"
	"github.com/spf13/cobra"
)

type viewOptions struct {
	noBrowser bool
	perfetto  bool
	noSource  bool
	port      int
}

func newView() *cobra.Command {
	var o viewOptions
	c := &cobra.Command{
		Use:   "view [flags] [FILE]",
		Short: "Show a recording in a browser",
		Long: `view shows a recording as a page: what each thread did over time, flame graphs, who blocked whom, where slow requests
went, and how far to trust it. The page is served on loopback, to anyone who has the printed URL; it loads
nothing from anywhere else. Ctrl-C ends it. FILE is ` + defaultFile + ` unless it is named.

To send a recording to somebody as a page: hbtrace export --html page.html`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return view(cmd, fileArgument(args), o) },
	}
	f := c.Flags()
	f.BoolVar(&o.noBrowser, "no-browser", false, "print the URL; do not open a browser")
	f.BoolVar(&o.noSource, "no-source", false, "do not show source lines")
	f.BoolVar(&o.perfetto, "perfetto", false, "show it in ui.perfetto.dev instead; that page fetches the trace from this machine")
	f.IntVar(&o.port, "port", 0, "the `port` on loopback (default: a free one; Perfetto's page asks 9001 and no other)")
	return c
}

// viewMemory is a page's, which keeps more than tables do.
const viewMemory = 900 << 20

func view(cmd *cobra.Command, path string, o viewOptions) error {
	if o.port < 0 || o.port > 65535 {
		return fmt.Errorf("view: --port %d: give one from 1 to 65535, or 0 for a free one", o.port)
	}
	src, err := openRecording(path)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.perfetto {
		return errors.Join(viewPerfetto(ctx, cmd, src, o), src.done())
	}
	limitMemory(viewMemory)
	m := page.New(src)
	if o.noSource {
		m.HideSource()
	}
	server, err := page.Listen(m, o.port)
	if err != nil {
		return errors.Join(err, src.done())
	}
	fmt.Fprintln(cmd.OutOrStdout(), server.URL())
	fmt.Fprintln(cmd.ErrOrStderr(), "hbtrace: showing "+path+" there until Ctrl-C")
	if !o.noBrowser {
		defer openBrowser(cmd.ErrOrStderr(), server.URL())()
	}
	// The page is there at once, and fills while the recording is read; what is wrong with it the page says too.
	read := make(chan error, 1)
	go func() {
		err := m.Read(ctx)
		if err != nil && ctx.Err() == nil {
			complain(cmd.ErrOrStderr(), about(path, err))
		}
		read <- err
	}()
	err = server.Serve(ctx)
	stop()
	<-read
	return errors.Join(err, src.done())
}

// viewPerfetto writes the trace to a file that is gone afterwards, and serves it to Perfetto's page.
func viewPerfetto(ctx context.Context, cmd *cobra.Command, src *recording, o viewOptions) error {
	port := o.port
	if port == 0 {
		port = page.PerfettoPort
	}
	dir, err := os.MkdirTemp("", "hbtrace-view-")
	if err != nil {
		return fmt.Errorf("making room for the trace: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "trace.perfetto-trace")
	progress := newProgress(cmd.ErrOrStderr(), false)
	progress.stage("writing a Perfetto trace")
	src.shows(progress, "writing a Perfetto trace")
	err = writeFile(file, nil, func(w io.Writer) error { return perfetto.Write(w, src, perfetto.Options{}) })
	progress.clear()
	if err != nil {
		return err
	}
	server, err := page.ListenPerfetto(file, port)
	if err != nil {
		return fmt.Errorf("%w: is another trace being shown there?", err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), server.URL())
	fmt.Fprintln(cmd.ErrOrStderr(), "hbtrace: ui.perfetto.dev may fetch the trace from this machine until it has, or until Ctrl-C")
	if !o.noBrowser {
		defer openBrowser(cmd.ErrOrStderr(), server.URL())()
	}
	return server.Serve(ctx)
}

// openBrowser starts the user's browser: of those that BROWSER lists (as xdg-open reads it), then of the usual names, the first that starts. It says so
// where there is none to start, or when it fails: the address is printed already. It is given a file that leads there: what a program is started with
// any user of the machine can read, and the address opens the page. forget removes the file.
func openBrowser(stderr io.Writer, url string) (forget func()) {
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" && os.Getenv("BROWSER") == "" {
		fmt.Fprintln(stderr, "hbtrace: no display here: open the address yourself, or from another machine through ssh -L")
		return func() {}
	}
	file, forget, err := leadingTo(url)
	if err != nil {
		fmt.Fprintf(stderr, "hbtrace: no place for a file that leads a browser there: open the address yourself: %v\n", err)
		return forget
	}
	for _, name := range append(filepath.SplitList(os.Getenv("BROWSER")), "xdg-open", "sensible-browser", "x-www-browser") {
		if name == "" {
			continue
		}
		cmd := exec.Command(name, "file://"+file)
		if cmd.Start() != nil {
			continue
		}
		go func() { // reaps it; xdg-open says only by its status that it found no browser
			var status *exec.ExitError
			if errors.As(cmd.Wait(), &status) && status.Exited() {
				fmt.Fprintf(stderr, "hbtrace: %s ended with %v: if it showed no page, open the address yourself\n", name, status)
			}
		}()
		return forget
	}
	fmt.Fprintln(stderr, "hbtrace: no browser was found: open the address yourself")
	return forget
}

// leadingTo makes a page that only this user can read, and that leads a browser to url.
func leadingTo(url string) (file string, forget func(), err error) {
	base := os.Getenv("XDG_RUNTIME_DIR") // the user's alone
	dir, err := os.MkdirTemp(base, "hbtrace-view-")
	if err != nil && base != "" {
		dir, err = os.MkdirTemp("", "hbtrace-view-")
	}
	if err != nil {
		return "", func() {}, err
	}
	forget = func() { os.RemoveAll(dir) }
	file = filepath.Join(dir, "open.html")
	to := html.EscapeString(url)
	text := "<!doctype html><meta charset=utf-8><title>hbtrace</title><meta name=referrer content=no-referrer>" +
		`<meta http-equiv=refresh content="0;url=` + to + `"><a href="` + to + `">the recording</a>` + "\n"
	return file, forget, os.WriteFile(file, []byte(text), 0o600)
}
