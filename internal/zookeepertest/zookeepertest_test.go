package zookeepertest

import "testing"

// TestPortTaken: a server whose port another server has taken does not count as started because the
// other one answers.
func TestPortTaken(t *testing.T) {
	first, second := Start(t, 1).Members[0], Start(t, 1).Members[0]
	second.Kill()
	second.Addr = first.Addr
	second.configure(1, "")
	second.launch()
	if second.serves() {
		t.Error("it counts as started")
	}
}
