package collector

import (
	"path/filepath"
	"sync"

	"github.com/hbtrace/hbtrace/agent"
	"github.com/hbtrace/hbtrace/collector/assemble"
)

// placements are the agents that package attach has put into running programs: executable memory that shows no file. To all that
// asks what lies at an address, it is a mapping of the file that the agent comes from.
type placements struct {
	mu     sync.Mutex
	texts  []placed
	object []byte
	path   string // of a copy on disk, for names; "" none
}

// placed is the text of one, in the process that it was put into and in its fork children.
type placed struct{ lo, hi, offset uint64 }

func (p *placements) add(text placed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.texts = append(p.texts, text)
	if p.object != nil {
		return
	}
	p.object, _ = agent.Attached()
	if preload, err := agent.Deliver(); err == nil {
		p.path = filepath.Join(filepath.Dir(preload), agent.AttachedName)
	}
}

// find makes a mapping that is the text of an agent one of its file, and returns the file; nil for all others.
func (p *placements) find(e *assemble.MapsEntry) []byte {
	if p == nil || e.Path != "" || !e.Exec {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.texts {
		if e.Lo <= t.lo && t.hi <= e.Hi {
			*e = assemble.MapsEntry{Lo: t.lo, Hi: t.hi, Offset: t.offset, Exec: true, Path: p.path}
			return p.object
		}
	}
	return nil
}
