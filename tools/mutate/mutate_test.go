package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSample(t *testing.T) {
	*dir = "."
	defer func(of float64) { *least = of }(*least)
	const lives = `./testdata/sample
lived 3 sample.go:6:5 > becomes >=
lived 5 sample.go:6:14 > becomes >=
not covered 9 sample.go:13:28 returns the opposite of true
1 tests, 9 mutants: 6 killed, 2 lived, 1 not covered; score 75.0 % of the covered

| Package | Changes | Noticed | Live | Not reached | Score |
|---|---|---|---|---|---|
| testdata/sample | 9 | 6 | 2 | 1 | 75.0 % |
`
	for _, c := range []struct {
		least  float64
		target string
		enough bool
		want   string
	}{
		{75, "./testdata/sample", true, lives},
		{90, "./testdata/sample=./testdata/sample", false, lives + "\na score is under 90 %\n"},
	} {
		*least = c.least
		var out bytes.Buffer
		if enough := mutateAll(&out, []string{c.target}); enough != c.enough || out.String() != c.want {
			t.Errorf("%s, at least %v %%: %v, got:\n%s", c.target, c.least, enough, &out)
		}
	}
}

// A test that does not end because the machine is busy notices nothing. One that does not end, or fails, because
// of the mutant notices it.
func TestBusyMachine(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   bool
	}{
		"slow, with a mutant or without":           {"sleep 1", false},
		"fails, with a mutant or without":          {"exit 1", false},
		"fails once with it":                       {"[ $MUTANT = 0 ] || ! mkdir failed 2>/dev/null", false},
		"does not end with the mutant":             {"[ $MUTANT = 0 ] || exec sleep 60", true},
		"fails with the mutant":                    {"exit $MUTANT", true},
		"fails with it, and slow at first without": {"[ $MUTANT != 0 ] || [ -d slow ] || { mkdir slow; exec sleep 60; }; exit $MUTANT", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			binary := filepath.Join(dir, "test")
			if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			r := runner{}
			if got := r.notice([]*test{{binary: binary, dir: dir, name: "Test"}}, 1, 200*time.Millisecond); got != c.want {
				t.Errorf("noticed: %v", got)
			}
		})
	}
}
