package bench

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// A nested lock must cost less than a tenth of the first. The race detector and coverage make
// its few steps dearer, so there it is a fifth. The two are timed in short turns, one after the
// other, so that whatever else the machine does falls on both; the medians leave out the turns in
// which it did much.
func TestNestedIsCheap(t *testing.T) {
	m := newClient(t).Mutex("nested")
	const rounds, turns = 101, 40
	var first, nested []time.Duration
	for range rounds {
		first = append(first, timed(t, turns, t.Context(), m))
		err := m.Do(t.Context(), func(ctx context.Context) error {
			nested = append(nested, timed(t, turns, ctx, m))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b := median(first)/turns, median(nested)/turns
	t.Logf("first Lock and Unlock %v, nested %v: %.1f %%", a, b, 100*float64(b)/float64(a))
	share := time.Duration(10)
	if underRace || testing.CoverMode() != "" {
		share = 5
	}
	if b*share >= a {
		t.Errorf("nested Lock and Unlock takes %v, the first %v; want less than one %dth", b, a, share)
	}
}

func timed(t *testing.T, turns int, ctx context.Context, m *dlock.Mutex) time.Duration {
	start := time.Now()
	for range turns {
		lockContext(t, ctx, m)
	}
	return time.Since(start)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
