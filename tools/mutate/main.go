// Command mutate tests the tests of a package: it changes the package's code in one small place at
// a time and says which changes no test notices. See CONTRIBUTING.md.
//
// It differs from the known tools in two ways. The tests may be those of other packages, and all
// mutants are compiled in one go and switched on by an environment variable. So a mutant takes as
// long as the tests that reach it, up to the first that fails.
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

//go:embed helper.go.txt
var helper string

var (
	dir   = flag.String("C", "..", "the directory of the module")
	only  = flag.String("only", "", "the `numbers` of some mutants, with commas between")
	every = flag.Int("every", 1, "run each n-th mutant only")
	skip  = flag.String("skip", "", "leave out tests whose names match this `regexp`")
	short = flag.Bool("short", true, "run the tests with -short")
	least = flag.Float64("least", 0, "fail if a package's score is under so many `percent`")
)

func main() {
	log.SetFlags(0)
	flag.Usage = func() {
		log.Println("usage: mutate [flags] PACKAGE[=PACKAGE-WITH-TESTS,...]...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if !mutateAll(os.Stdout, flag.Args()) {
		os.Exit(1)
	}
}

// mutateAll prints which mutants of some packages live, and at the end how many of each. It returns
// whether all scores are high enough. A package's own tests run, or those of the packages after a "=".
func mutateAll(w io.Writer, targets []string) bool {
	enough := true
	table := "| Package | Changes | Noticed | Live | Not reached | Score |\n|---|---|---|---|---|---|\n"
	for _, target := range targets {
		pattern, others, found := strings.Cut(target, "=")
		if !found {
			others = pattern
		}
		fmt.Fprintln(w, pattern)
		s := mutate(w, pattern, strings.Split(others, ","))
		enough = enough && s.percent() >= *least
		table += fmt.Sprintf("| %s | %d | %d | %d | %d | %.1f %% |\n",
			strings.TrimPrefix(pattern, "./"), s.killed+s.lived+s.missed, s.killed, s.lived, s.missed, s.percent())
	}
	fmt.Fprintf(w, "\n%s", table)
	if !enough {
		fmt.Fprintf(w, "\na score is under %v %%\n", *least)
	}
	return enough
}

// mutate prints which mutants of a package live under the tests of some packages.
func mutate(w io.Writer, pattern string, tests []string) score {
	tmp, err := os.MkdirTemp("", "mutate")
	check(err)
	defer os.RemoveAll(tmp)
	mutants, overlay := prepare(tmp, pattern)
	r := runner{tmp: tmp, out: w, reached: make(map[int][]*test)}
	for i, pattern := range tests {
		r.build(overlay, pattern, filepath.Join(tmp, strconv.Itoa(i)+".test"))
	}
	return r.all(mutants, *only)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// prepare writes the package with all its mutants into tmp, and an overlay for go build.
func prepare(tmp, pattern string) ([]mutant, string) {
	pkgs, err := packages.Load(&packages.Config{Dir: *dir, Mode: packages.LoadSyntax}, pattern)
	check(err)
	if len(pkgs) != 1 || len(pkgs[0].Errors) > 0 {
		log.Fatalf("%s: not one package that compiles: %v", pattern, pkgs)
	}
	pkg := pkgs[0]
	r := rewriter{pkg: pkg}
	replace := make(map[string]string)
	put := func(path string, content []byte) {
		to := filepath.Join(tmp, filepath.Base(path))
		check(os.WriteFile(to, content, 0o600))
		replace[path] = to
	}
	for i, f := range pkg.Syntax {
		src, err := os.ReadFile(pkg.CompiledGoFiles[i])
		check(err)
		put(pkg.CompiledGoFiles[i], r.file(f, src))
	}
	code := strings.NewReplacer("PACKAGE", pkg.Name, "COUNT", strconv.Itoa(len(r.mutants))).Replace(helper)
	put(filepath.Join(filepath.Dir(pkg.CompiledGoFiles[0]), "zz_mutant.go"), []byte(code))

	b, err := json.Marshal(map[string]any{"Replace": replace})
	check(err)
	overlay := filepath.Join(tmp, "overlay.json")
	check(os.WriteFile(overlay, b, 0o600))
	return r.mutants, overlay
}

// command runs in the module.
func command(name string, args ...string) string {
	c := exec.Command(name, args...)
	c.Dir = *dir
	c.Stderr = os.Stderr
	b, err := c.Output()
	if err != nil {
		fmt.Print(string(b))
		log.Fatalf("%s: %v", c, err)
	}
	return string(b)
}
