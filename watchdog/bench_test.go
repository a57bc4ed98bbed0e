package watchdog

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func renewAll(_ context.Context, batch []*Lease) []Outcome {
	out := make([]Outcome, len(batch))
	for i := range out {
		out[i] = Renewed
	}
	return out
}

func newBench(b *testing.B) *Watchdog {
	w, err := New(Config{Renew: renewAll, Expired: func(*Lease) {}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(w.Close)
	return w
}

// BenchmarkKeepDisarm measures what the watchdog adds to a lock and its unlock. A
// lock has read the clock when it calls Keep, so that is not part of it.
func BenchmarkKeepDisarm(b *testing.B) {
	const validity = 30 * time.Second
	b.Run("alone", func(b *testing.B) { keepDisarm(b, newBench(b)) })
	b.Run("new lease", func(b *testing.B) {
		w := newBench(b)
		leases := make([]Lease, 4096)
		now := time.Now()
		i := 0
		for b.Loop() {
			if i == len(leases) {
				leases, i = make([]Lease, len(leases)), 0
				now = time.Now()
			}
			l := &leases[i]
			i++
			w.Keep(l, Terms{Deadline: now.Add(validity), Validity: validity, Now: now})
			l.Disarm()
		}
	})
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint("among ", n), func(b *testing.B) {
			w := newBench(b)
			leases := make([]Lease, n)
			for i := range leases {
				// Their deadlines are about that of the measured lease.
				d := validity + time.Duration(i-n/2)*validity/time.Duration(8*n)
				w.Keep(&leases[i], Terms{Deadline: time.Now().Add(d), Validity: validity})
			}
			keepDisarm(b, w)
		})
	}
	b.Run("parallel", func(b *testing.B) {
		w := newBench(b)
		b.RunParallel(func(pb *testing.PB) {
			l := new(Lease)
			for pb.Next() {
				now := time.Now()
				w.Keep(l, Terms{Deadline: now.Add(validity), Validity: validity, Now: now})
				l.Disarm()
			}
		})
	})
}

func keepDisarm(b *testing.B, w *Watchdog) {
	const validity = 30 * time.Second
	var l Lease
	b.ReportAllocs()
	now := time.Now()
	n := 0
	for b.Loop() {
		if n++; n%1024 == 0 {
			now = time.Now()
		}
		w.Keep(&l, Terms{Deadline: now.Add(validity), Validity: validity, Now: now})
		if !l.Disarm() {
			b.Fatal("not armed")
		}
	}
}

// BenchmarkHeld100k measures one second of 100,000 leases of 3 s: each is renewed
// once. Leases of 30 s cost the same in ten seconds.
func BenchmarkHeld100k(b *testing.B) {
	w := newBench(b)
	leases := make([]Lease, 100_000)
	for i := range leases {
		w.Keep(&leases[i], Terms{Deadline: time.Now().Add(3 * time.Second), Validity: 3 * time.Second})
	}
	before := cpuTime(b)
	n := 0
	for b.Loop() {
		time.Sleep(time.Second)
		n++
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(n)/1e6, "cpu-ms/round")
	for i := range leases {
		if !leases[i].Disarm() {
			b.Fatal("lost")
		}
	}
}

func BenchmarkValid(b *testing.B) {
	w := newBench(b)
	var l Lease
	w.Keep(&l, Terms{Deadline: time.Now().Add(time.Hour)})
	b.ReportAllocs()
	for b.Loop() {
		if !l.Valid() {
			b.Fatal("not valid")
		}
	}
}

// BenchmarkNewWheel measures how long the wheel's goroutine takes to make a wheel,
// when one is needed after a pause.
func BenchmarkNewWheel(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		newTimingWheel().Stop()
	}
}

// cpuTime returns for how many nanoseconds goroutines of this process have run. The
// runtime updates it at each garbage collection.
func cpuTime(tb testing.TB) int64 {
	tb.Helper()
	runtime.GC()
	s := []metrics.Sample{{Name: "/cpu/classes/user:cpu-seconds"}}
	metrics.Read(s)
	return int64(s[0].Value.Float64() * 1e9)
}
