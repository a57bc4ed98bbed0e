// Bench measures dlock beside other libraries of locks, and beside the least that
// a lock could cost, in one run, on a redis-server and an etcd server of its own.
// From the directory of this module:
//
//	go run ./bench                            prints the report
//	go run ./bench -w ../docs/benchmarks.md   writes it there, and charts beside it
//	go run ./bench -only=distinct-512 -of=pair,dlock -fsync=everysec    with Redis' append-only file
//	go run ./bench -only=distinct -profiles=DIR    profiles of a process of each, for go tool pprof
//
// Each measurement is made by worker processes, which are this program again.
// Locks that exclude guard a counter in memory that the processes share: what is
// lost of its updates is in the report. A hand-over is a change of the owner; a
// goroutine that locks again what it has just unlocked makes none.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/integration/section"
)

func main() {
	beWorker()
	log.SetFlags(log.Ltime)
	var (
		length = flag.Duration("time", time.Second, "length of each measurement; some take several times as long")
		reps   = flag.Int("reps", 3, "repetitions")
		only   = flag.String("only", "", "only scenarios whose id matches this `regexp`; -list shows the ids")
		of     = flag.String("of", "", "only these libraries, by their ids with commas between")
		fsync  = flag.String("fsync", "", "Redis keeps an append-only file, with this `appendfsync`: always, everysec or no")
		list   = flag.Bool("list", false, "print the ids of the scenarios and end")
		dir    = flag.String("profiles", "", "write profiles of the processor, of allocations and of mutexes into this `directory`: slower, no figures")
		write  = flag.String("w", "", "write the report into this `file`, between its marks, and the chart beside it")
	)
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil || flag.NArg() > 0 || *length <= 0 || *reps < 1 || *write != "" && *only+*of+*fsync+*dir != "" {
		fmt.Fprintln(os.Stderr, "bench: a report that is written is of all scenarios and libraries, without profiles and append-only file; -time and -reps are positive")
		flag.Usage()
		os.Exit(2)
	}
	z := usual(*length, *reps)
	if *list {
		for _, s := range z.scenarios() {
			fmt.Printf("%-16s %s\n", s.id, s.title)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	wanted := func(s scenario, library string) bool {
		return pattern.MatchString(s.id) && (*of == "" || slices.Contains(strings.Split(*of, ","), library))
	}
	if err := measure(ctx, z, *fsync, wanted, *write, func(b *bench) { b.profiles = *dir }); err != nil {
		log.Fatal(err)
	}
}

// measure starts the servers, tells of the bench, runs it and reports. No server
// and no worker is left when it returns.
func measure(ctx context.Context, z sizes, fsync string, wanted func(scenario, string) bool, file string, tell func(*bench)) (err error) {
	s := &stand{}
	defer s.end()
	defer func() {
		switch f := recover().(type) {
		case nil:
		case fault:
			err = fmt.Errorf("bench: %s", f)
		default:
			panic(f)
		}
	}()
	began := time.Now()
	b := &bench{sizes: z, servers: startServers(s, fsync), wanted: wanted}
	versions, err := b.servers.versions()
	if err != nil {
		return err
	}
	log.Print(versions)
	tell(b)
	if err := b.run(ctx); err != nil {
		return err
	}
	log.Printf("done in %v", time.Since(began).Round(time.Second))
	if file == "" {
		fmt.Print(b.report(b.command(""), versions, "", ""))
		return nil
	}
	return b.write(file, versions)
}

func (b *bench) command(file string) string {
	command := fmt.Sprintf("go run ./bench -time=%v -reps=%d", b.sizes.time, b.sizes.reps)
	if file != "" {
		command += " -w=../docs/" + filepath.Base(file)
	}
	return command
}

// write puts the report into its section of a document, and the charts beside it.
func (b *bench) write(file, versions string) error {
	base := strings.TrimSuffix(file, filepath.Ext(file))
	chart, growth := base+".svg", base+"-growth.svg"
	for path, draw := range map[string]func(io.Writer) error{chart: b.chart, growth: b.growth} {
		var drawn bytes.Buffer
		if err := draw(&drawn); err != nil {
			return err
		}
		if err := os.WriteFile(path, drawn.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return section.Write(file, "peers", b.report(b.command(file), versions, filepath.Base(chart), filepath.Base(growth)))
}
