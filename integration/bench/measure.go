package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"path/filepath"
	"time"
)

// row is what was measured of a scenario with a library.
type row struct {
	scenario scenario
	library  library
	values   map[string]figures // by column
	errors   int
	first    string // error
	stuck    int    // goroutines
	missing  string // why there are no values
}

func (r *row) put(values map[string]float64, of result) {
	for k, v := range values {
		r.values[k] = append(r.values[k], v)
	}
	r.errors += of.Errors
	r.stuck += of.Stuck
	if r.first == "" {
		r.first = of.FirstError
	}
}

// bench is a run of everything.
type bench struct {
	sizes   sizes
	servers *servers
	wanted  func(s scenario, library string) bool
	rows    []*row

	profiles string // where the workers write theirs; "": nowhere
}

// run measures everything. Libraries take turns within a scenario, so that
// whatever else happens meanwhile happens to all of them.
func (b *bench) run(ctx context.Context) error {
	for _, s := range b.sizes.scenarios() {
		var rows []*row
		for _, id := range s.libraries {
			if b.wanted(s, id) {
				rows = append(rows, &row{scenario: s, library: libraryOf(id), values: map[string]figures{}})
			}
		}
		b.rows = append(b.rows, rows...)
		if s.windows {
			for _, r := range rows {
				if err := b.watch(ctx, r); err != nil {
					return err
				}
				if r.missing != "" {
					log.Printf("%s, %s: %s", s.id, r.library.id, r.missing)
				}
			}
			continue
		}
		for rep := range b.sizes.reps {
			for _, r := range rows {
				if err := b.turn(ctx, r); err != nil {
					return err
				}
				log.Printf("%s, %s, %d of %d: %s", s.id, r.library.id, rep+1, b.sizes.reps, r.brief())
			}
		}
	}
	return nil
}

// turn measures once what workers do who start for it.
func (b *bench) turn(ctx context.Context, r *row) error {
	return b.with(ctx, r, func(c *crew, p *page) error {
		before, err := b.servers.load(r.library)
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := c.all(); err != nil {
			return err
		}
		after, err := b.servers.load(r.library)
		if err != nil {
			return err
		}
		elapsed := time.Since(began)
		sum, err := c.all()
		if err != nil {
			return err
		}
		sum.Lost += p.lost(sum.Writes) + sum.Torn
		r.put(values(r, sum, after.since(before), elapsed), sum)
		return nil
	})
}

// watch measures several times what workers hold or wait for.
func (b *bench) watch(ctx context.Context, r *row) error {
	return b.with(ctx, r, func(c *crew, _ *page) error {
		for rep := range b.sizes.reps {
			before, err := b.servers.load(r.library)
			if err != nil {
				return err
			}
			began := time.Now()
			sum, err := c.all()
			if err != nil {
				return err
			}
			after, err := b.servers.load(r.library)
			if err != nil {
				return err
			}
			r.put(values(r, sum, after.since(before), time.Since(began)), sum)
			log.Printf("%s, %s, %d of %d: %s", r.scenario.id, r.library.id, rep+1, b.sizes.reps, r.brief())
		}
		return nil
	})
}

// with has workers at work. That one library cannot do what it should is a
// result, and no reason to end.
func (b *bench) with(ctx context.Context, r *row, do func(*crew, *page) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path, remove, err := newPage()
	if err != nil {
		return err
	}
	defer remove()
	p, err := openPage(path)
	if err != nil {
		return err
	}
	defer p.close()
	j := r.scenario.job
	j.Library, j.Addr, j.Page = r.library.id, b.servers.addr(r.library), path
	if b.profiles != "" {
		j.Profiles = filepath.Join(b.profiles, r.scenario.id+"-"+r.library.id)
	}
	c, err := start(ctx, j, j.Kind == "idle")
	if err == nil {
		err = do(c, p)
		c.end()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		r.missing = err.Error()
	}
	return b.servers.clear()
}

// values are the columns of one repetition. What the server has done is seen from
// here, and may have taken a little longer than what the workers have counted: so
// rates are compared, not numbers.
func values(r *row, sum result, done load, elapsed time.Duration) map[string]float64 {
	locks := float64(sum.Locks) / sum.Elapsed.Seconds()
	changes := float64(sum.Changes) / sum.Elapsed.Seconds()
	requests := done.requests / elapsed.Seconds()
	j := r.scenario.job
	v := map[string]float64{
		"locks":      locks,
		"changes":    changes,
		"p50":        sum.Times.quantile(0.5).Seconds(),
		"p99":        sum.Times.quantile(0.99).Seconds(),
		"fairness":   fairness(sum.Turns),
		"lost":       float64(sum.Lost),
		"rate":       requests,
		"requests":   requests / locks,
		"perChange":  requests / changes,
		"serverLock": done.took.Seconds() / elapsed.Seconds() / locks,
		"server":     done.took.Seconds() / elapsed.Seconds() / changes,
		"serverCPU":  done.cpu.Seconds() / elapsed.Seconds() / locks,
		"cpu":        sum.CPU.Seconds() / sum.Elapsed.Seconds() * 100,
		"memory":     float64(sum.Memory) / (1 << 20),
		"goroutines": float64(sum.Running),
		"renewal":    requests * (j.Lease / 3).Seconds() / float64(j.Locks),
	}
	if r.library.server == "" {
		v["requests"] = math.NaN()
	}
	if r.library.server != redisServer {
		v["serverCPU"] = math.NaN()
	}
	return v
}

// brief is the last repetition, for who waits.
func (r *row) brief() (s string) {
	if r.missing != "" {
		return r.missing
	}
	for _, key := range r.scenario.columns {
		f := r.values[key]
		if len(f) == 0 {
			continue
		}
		s += fmt.Sprintf("%s %s  ", key, columns[key].show(f[len(f)-1]))
	}
	return s
}
