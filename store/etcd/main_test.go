package etcd_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more cases at once than there are processors: they mostly wait
// for leases, of which the shortest lasts a second.
func TestMain(m *testing.M) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		flag.Set("test.parallel", "16")
	}
	os.Exit(m.Run())
}
