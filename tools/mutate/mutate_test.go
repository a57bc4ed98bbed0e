package main

import (
	"bytes"
	"testing"
)

func TestSample(t *testing.T) {
	*dir = "."
	var out bytes.Buffer
	mutate(&out, t.TempDir(), "./testdata/sample", []string{"./testdata/sample"})
	const want = `lived 3 sample.go:6:5 > becomes >=
lived 5 sample.go:6:14 > becomes >=
not covered 9 sample.go:13:28 returns the opposite of true
1 tests, 9 mutants: 6 killed, 2 lived, 1 not covered; score 75.0 % of the covered
`
	if out.String() != want {
		t.Errorf("got:\n%s", &out)
	}
}
