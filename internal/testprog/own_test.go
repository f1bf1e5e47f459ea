package testprog

// own_test.go: the agent's own time.

import "testing"

// The agent finds some of the program's CPU time to be its own, and never more than the program used.
func TestAgentTime(t *testing.T) {
	s := record(t, Build(t, "malloc")).Stats()
	if s.AgentCPU <= 0 || s.AgentCPU > s.TargetCPU {
		t.Errorf("agent %v of the program's %v", s.AgentCPU, s.TargetCPU)
	}
}
