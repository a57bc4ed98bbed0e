package real

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// kept is the first line of a file that keep writes; the others are the records.
type kept struct {
	plan
	Void       string
	Violations []string
	Outside    []string // those of them that the records do not show
	Evidence   *evidence
}

// keep writes a history and the logs of its servers into a directory, which it
// returns.
func (h *history) keep(e *evidence, j *judgement) string {
	h.t.Helper()
	if *keepIn != "" {
		h.must(os.MkdirAll(*keepIn, 0o700))
	}
	dir, err := os.MkdirTemp(*keepIn, "dlock-history-")
	h.must(err)
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	h.must(lines.Encode(kept{h.plan, j.void, j.violations, j.outside, e}))
	h.mu.Lock() // if the rig failed workers may go on
	records := slices.Clone(h.records)
	h.mu.Unlock()
	for _, r := range records {
		h.must(lines.Encode(r))
	}
	files := h.site.logs()
	files["history.jsonl"] = text.Bytes()
	for name, content := range files {
		h.must(os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return dir
}

// load reads the history of a file that keep wrote.
func load(path string) (k kept, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return k, err
	}
	lines := json.NewDecoder(bytes.NewReader(text))
	if err := lines.Decode(&k); err != nil {
		return k, err
	}
	for lines.More() {
		var r record
		if err := lines.Decode(&r); err != nil {
			return k, err
		}
		k.Evidence.records = append(k.Evidence.records, r)
	}
	return k, nil
}

// judge judges the history once more. What the records do not show stays as it was.
func (k kept) judge() *judgement {
	j := k.Evidence.judge()
	j.void, j.violations = k.Void, slices.Concat(k.Outside, j.violations)
	return j
}

// TestKeptHistoryKeepsWhatItsRecordsDoNotShow: such as a key that is left at the end.
func TestKeptHistoryKeepsWhatItsRecordsDoNotShow(t *testing.T) {
	k := kept{Void: "few", Outside: []string{"a key is left"}, Evidence: &evidence{}}
	if j := k.judge(); j.void != "few" || !slices.Equal(j.violations, k.Outside) {
		t.Errorf("got %+v", j)
	}
}

// again judges the history that is kept in dir, or those in directories below it, once more.
func again(t *testing.T, dir string) {
	one, _ := filepath.Glob(filepath.Join(dir, "history.jsonl"))
	paths, err := filepath.Glob(filepath.Join(dir, "*", "history.jsonl"))
	if paths = append(paths, one...); err != nil || len(paths) == 0 {
		t.Fatalf("no histories in %q: %v", dir, err)
	}
	sum := &table{rows: map[row]*tally{}}
	for _, path := range paths {
		k, err := load(path)
		if err != nil {
			t.Fatal(path, err)
		}
		began := time.Now()
		j := k.judge()
		sum.add(k.plan, j)
		if took := time.Since(began); took > time.Second {
			t.Logf("%s took %v", path, took)
		}
		for _, v := range j.violations[:min(len(j.violations), 10)] {
			t.Errorf("%s, %s with %q: %s", path, k.Deployment, k.Faults, v)
		}
	}
	t.Logf("%d histories\n%s", len(paths), sum)
}
