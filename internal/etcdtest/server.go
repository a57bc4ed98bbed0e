package etcdtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

var (
	libraryModule = regexp.MustCompile(`(?m)^module github\.com/dlock-go/dlock$`)
	pinnedServer  = regexp.MustCompile(`(?m)^\s*go\.etcd\.io/etcd/server/v3 (v\S+)`)
)

// findServer returns the path of the etcd server. It asks no go command for the
// version, which would take longer than to start a server.
func findServer() (string, error) {
	if program := os.Getenv("DLOCK_ETCD"); program != "" {
		path, err := exec.LookPath(program)
		if err != nil {
			return "", fmt.Errorf("DLOCK_ETCD names no program: %w", err)
		}
		return path, nil
	}
	root, err := findRoot()
	if err != nil {
		return "", err
	}
	pins, err := os.ReadFile(filepath.Join(root, "tools", "etcd", "go.mod"))
	if err != nil {
		return "", fmt.Errorf("nothing says which etcd server to start: %w", err)
	}
	version := pinnedServer.FindSubmatch(pins)
	if version == nil {
		return "", fmt.Errorf("tools/etcd/go.mod in %s names no version of the etcd server", root)
	}
	program := filepath.Join(root, ".cache", "etcd-"+string(version[1]))
	if _, err := exec.LookPath(program); err != nil {
		return "", fmt.Errorf("the etcd server %s is not built: run `.ci/etcd` in %s, or `make test`, which does", version[1], root)
	}
	return program, nil
}

// findRoot returns the directory of the library's module, of which the working
// directory is a part, if only as one of another module in it.
func findRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && libraryModule.Match(mod) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in the repository of dlock, where the etcd server is: set DLOCK_ETCD to one", start)
		}
	}
}
