package synthetic

import (
	"io"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// Odd are recordings that an exporter has to get through, by what is odd about them: hostile names, nothing at all, and a crowd of
// so many threads.
func Odd(threads int) map[string]trace.Source {
	return map[string]trace.Source{"hostile": Hostile().Source(), "empty": tracetest.New().Source(), "crowd": Crowd(threads).Source()}
}

// Gone is a reader that went away: every write to it fails with io.ErrClosedPipe.
type Gone struct{}

func (Gone) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
