package locktest

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPulse: a stop counts as far as it is between the moments, and so does the time for which a thread waited.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const beat, least = time.Millisecond, 10 * time.Millisecond
		began := time.Now()
		asked, waited := 0, time.Duration(0)
		p := startPulse(t, beat, least, func() error {
			switch asked++; asked {
			case 1:
				time.Sleep(100 * time.Millisecond)
			case 3:
				waited += 20 * time.Millisecond
			case 4:
				time.Sleep(least) // too short
			}
			return nil
		}, func() map[string]time.Duration { return map[string]time.Duration{"a": waited, "b": 0} })
		time.Sleep(200 * time.Millisecond)
		for _, c := range []struct{ from, to, want time.Duration }{
			{0, time.Second, 102 * time.Millisecond}, // of the thread's wait 2 ms are after the first stop
			{40 * time.Millisecond, 70 * time.Millisecond, 30 * time.Millisecond},
			{110 * time.Millisecond, time.Second, 0},
			{time.Minute, time.Hour, 0},
		} {
			if got := p.Stopped(began.Add(c.from), began.Add(c.to)); got != c.want {
				t.Errorf("stopped between %v and %v: got %v, want %v", c.from, c.to, got, c.want)
			}
		}
		if got := p.Worst(); got != 100*time.Millisecond {
			t.Errorf("the longest stop: got %v", got)
		}
	})
}
