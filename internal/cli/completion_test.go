package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// completed returns what bash inserts for the last of the words, one line for each choice. A
// program that prints these names stands in for dlock.
func completed(t *testing.T, dir string, names []string, words ...string) []string {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "names"), []byte(strings.Join(names, "\n")+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dlock"), []byte("#!/bin/sh\ncat names\n"), 0o700))
	_, script, _ := newShell(t).dlock("completion", "bash")
	script += "\nCOMP_WORDS=(dlock \"$@\"); COMP_CWORD=$#; _dlock; [ ${#COMPREPLY[@]} = 0 ] || printf '%s\\n' \"${COMPREPLY[@]}\""
	cmd := exec.Command("bash", append([]string{"-c", script, "bash"}, words...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "DLOCK_STORE=redis://x")
	out, err := cmd.CombinedOutput()
	if len(out) > 0 {
		require.NoError(t, err, "%s", out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func TestCompletionCompletesNames(t *testing.T) {
	names := []string{"order/1", "order 2", "nightly"}
	assert.Equal(t, []string{"order/1", `order\ 2`}, completed(t, t.TempDir(), names, "inspect", "or"))
	assert.Equal(t, []string{`order\ 2`}, completed(t, t.TempDir(), names, "inspect", `order\ `))
	assert.Contains(t, completed(t, t.TempDir(), names, "run", ""), "nightly")
	assert.Equal(t, []string{"list"}, completed(t, t.TempDir(), names, "li"))
	assert.Equal(t, []string{"--names"}, completed(t, t.TempDir(), names, "list", "--n"))
	assert.Equal(t, []string{"zsh"}, completed(t, t.TempDir(), names, "completion", "z"))
}

// A name is any text of any process. Neither Tab nor the line that Tab completes runs it.
func TestCompletionRunsNothingOfNames(t *testing.T) {
	dir := t.TempDir()
	names := []string{"$(touch${IFS}ran)", "`touch${IFS}ran`", "a;touch ran", "a'$(touch ran)", "*", "~", "--yes", `"quoted\x1b"`}
	choices := completed(t, dir, names, "break", "")
	assert.NoFileExists(t, filepath.Join(dir, "ran"), "Tab ran a name")
	var inserted []string
	for _, choice := range choices {
		if !strings.HasPrefix(choice, "--") {
			inserted = append(inserted, choice)
		}
	}
	assert.NotContains(t, completed(t, dir, names, "inspect", "--y"), "--yes", "a name stands for a flag")
	cmd := exec.Command("bash", "-c", `printf '%s\n' `+strings.Join(inserted, " "))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, strings.Join(names[:6], "\n")+"\n", string(out), "the line does not have the names")
	assert.NoFileExists(t, filepath.Join(dir, "ran"), "the line ran a name")
}
