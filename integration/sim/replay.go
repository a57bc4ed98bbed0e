package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// kept is the file of a failed history.
type kept struct {
	Seed       uint64
	Violations []string
	History    *History // its plan included
}

// keep writes a history and what was found in it to a file in dir, and returns
// its path.
func keep(dir string, h *History, found []Violation) (string, error) {
	k := kept{Seed: h.Plan.Seed, History: h}
	for _, v := range found {
		k.Violations = append(k.Violations, v.String())
	}
	text, err := json.MarshalIndent(k, "", "\t")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("history-%d.json", k.Seed))
	return path, os.WriteFile(path, text, 0o666)
}

// load reads the history of a file that keep wrote.
func load(path string) (*History, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	k := kept{History: newHistory(Plan{})}
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k.History, nil
}
