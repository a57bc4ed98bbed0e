package watchdog

import (
	"context"
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
	w, err := New(Config{Renew: renewAll, Expired: func(*Lease, Cause) {}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(w.Close)
	return w
}

// BenchmarkKeepDisarm is what the watchdog adds to a Lock and its Unlock.
func BenchmarkKeepDisarm(b *testing.B) {
	w := newBench(b)
	var l Lease
	b.ReportAllocs()
	for b.Loop() {
		w.Keep(&l, Terms{Deadline: time.Now().Add(30 * time.Second), Validity: 30 * time.Second})
		if !l.Disarm() {
			b.Fatal("not armed")
		}
	}
}

func BenchmarkKeepDisarmParallel(b *testing.B) {
	w := newBench(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		l := new(Lease)
		for pb.Next() {
			w.Keep(l, Terms{Deadline: time.Now().Add(30 * time.Second), Validity: 30 * time.Second})
			l.Disarm()
		}
	})
}

func BenchmarkKeepDisarmAmong100k(b *testing.B) {
	w := newBench(b)
	leases := make([]Lease, 100_000)
	for i := range leases {
		w.Keep(&leases[i], Terms{Deadline: time.Now().Add(30 * time.Second), Validity: 30 * time.Second})
	}
	var l Lease
	b.ReportAllocs()
	for b.Loop() {
		w.Keep(&l, Terms{Deadline: time.Now().Add(30 * time.Second), Validity: 30 * time.Second})
		l.Disarm()
	}
}

// BenchmarkHeld100k is the cost of one second of 100,000 leases of 3 s, that
// is of ten seconds of leases of 30 s: one renewal of each.
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
		if !leases[i].End() {
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

// BenchmarkNewWheel is what the first lease after a pause costs the goroutine
// that feeds the wheel.
func BenchmarkNewWheel(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		newTimingWheel().Stop()
	}
}

// cpuTime is the time that goroutines of this process have spent running, in
// nanoseconds; the runtime adds it up at each collection.
func cpuTime(tb testing.TB) int64 {
	tb.Helper()
	runtime.GC()
	s := []metrics.Sample{{Name: "/cpu/classes/user:cpu-seconds"}}
	metrics.Read(s)
	return int64(s[0].Value.Float64() * 1e9)
}
