package bench

import "testing"

// Caller: what it costs to make a call on the caller's goroutine, on a new goroutine
// that the caller waits for, and on one that is parked until it is given work. The
// first request of a lock is made in the first way.
func BenchmarkCaller(b *testing.B) {
	n := 0
	call := func() { n++ }
	b.Run("own goroutine", func(b *testing.B) {
		for b.Loop() {
			call()
		}
	})
	b.Run("new goroutine", func(b *testing.B) {
		for b.Loop() {
			done := make(chan struct{})
			go func() { call(); close(done) }()
			<-done
		}
	})
	b.Run("parked worker", func(b *testing.B) {
		type job struct {
			f    func()
			done chan struct{}
		}
		jobs := make(chan job)
		defer close(jobs)
		go func() {
			for j := range jobs {
				j.f()
				j.done <- struct{}{}
			}
		}()
		done := make(chan struct{})
		for b.Loop() {
			jobs <- job{call, done}
			<-done
		}
	})
}
