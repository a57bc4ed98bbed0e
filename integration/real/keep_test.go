package real

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
)

// keep writes a history and the logs of its servers into a directory, which it
// returns.
func (h *history) keep(j *judgement) string {
	h.t.Helper()
	dir, err := os.MkdirTemp("", "dlock-history-")
	h.must(err)
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	h.must(lines.Encode(struct {
		plan
		Violations []string
	}{h.plan, j.violations}))
	for _, r := range h.records {
		h.must(lines.Encode(r))
	}
	files := h.site.logs()
	files["history.jsonl"] = text.Bytes()
	for name, content := range files {
		h.must(os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return dir
}
