// Table runs the benchmarks several times and prints a table of medians, in
// Markdown. Run it at the root of the repository:
//
//	go run ./bench/table -w docs/benchmarks.md
//
// With -w it replaces what stands between the marks of a file by the table.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const (
	begin = "<!-- begin: written by bench/table -->\n"
	end   = "<!-- end -->\n"
)

// result has the figures of one benchmark, one for each repetition.
type result struct {
	group, name       string
	ns, bytes, allocs []float64
}

func main() {
	log.SetFlags(0)
	count := flag.Int("count", 7, "repetitions")
	benchtime := flag.String("benchtime", "500ms", "time of each repetition, as for go test")
	bench := flag.String("bench", ".", "which benchmarks, as for go test")
	file := flag.String("w", "", "write the table into this file, between its marks")
	flag.Parse()

	args := []string{
		"test", "-run=^$", "-bench=" + *bench, "-benchmem", "-timeout=60m",
		"-benchtime=" + *benchtime, "-count=" + strconv.Itoa(*count), "./bench",
	}
	log.Printf("go %s", strings.Join(args, " "))
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(&out, os.Stderr)
	if err := cmd.Run(); err != nil {
		log.Fatal(err)
	}
	table, err := render(&out, *count)
	if err != nil {
		log.Fatal(err)
	}
	if *file == "" {
		fmt.Print(table)
		return
	}
	if err := insert(*file, table); err != nil {
		log.Fatal(err)
	}
}

var (
	line = regexp.MustCompile(`^Benchmark(\w+)/(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op\s+(\d+) B/op\s+(\d+) allocs/op`)
	cpu  = regexp.MustCompile(`^cpu: (.*)`)
)

func render(out io.Reader, count int) (string, error) {
	var results []*result
	processor := "unknown"
	for in := bufio.NewScanner(out); in.Scan(); {
		if m := cpu.FindStringSubmatch(in.Text()); m != nil {
			processor = m[1]
		}
		m := line.FindStringSubmatch(in.Text())
		if m == nil {
			continue
		}
		i := slices.IndexFunc(results, func(r *result) bool { return r.group == m[1] && r.name == m[2] })
		if i < 0 {
			i = len(results)
			results = append(results, &result{group: m[1], name: m[2]})
		}
		r := results[i]
		for k, list := range []*[]float64{&r.ns, &r.bytes, &r.allocs} {
			v, err := strconv.ParseFloat(m[3+k], 64)
			if err != nil {
				return "", err
			}
			*list = append(*list, v)
		}
	}
	if len(results) == 0 {
		return "", fmt.Errorf("no benchmark has run")
	}

	var s strings.Builder
	fmt.Fprintf(&s, "%s, %s/%s, %d CPUs (%s). Medians of %d repetitions; in brackets the least and the greatest.\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), processor, count)
	s.WriteString("| Benchmark | Lock | ns/op | ratio | B/op | allocs/op |\n|---|---|--:|--:|--:|--:|\n")
	var first *result // of the group: what the others are compared with
	for _, r := range results {
		slices.Sort(r.ns)
		slices.Sort(r.bytes)
		slices.Sort(r.allocs)
		group := ""
		if first == nil || first.group != r.group {
			first, group = r, r.group
		}
		fmt.Fprintf(&s, "| %s | %s | %s (%s – %s) | %s | %.0f | %.0f |\n", group, r.name,
			short(median(r.ns)), short(r.ns[0]), short(r.ns[len(r.ns)-1]),
			short(median(r.ns)/median(first.ns)), median(r.bytes), median(r.allocs))
	}
	return s.String(), nil
}

func median(sorted []float64) float64 { return sorted[len(sorted)/2] }

// short shows a number with about three digits.
func short(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func insert(file, table string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, rest, found := strings.Cut(string(text), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no marks %q and %q", file, begin, end)
	}
	return os.WriteFile(file, []byte(head+begin+"\n"+table+"\n"+end+tail), 0o666)
}
