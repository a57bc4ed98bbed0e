package request

import (
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

const (
	// maxFirstTries bounds how many releases are tried for the first time at once.
	// Those of a part of the store that hangs do not keep others waiting until
	// there are that many.
	maxFirstTries = 256
	// maxRetries bounds the goroutines that repeat releases, and again those that release
	// holds which were lost. Both can wait: their leases end by themselves.
	maxRetries = 8
)

// releaser releases in the background what nobody holds or waits for: places and
// late grants of calls that gave up, lost holds, releases without a known outcome.
// It goes on until the store has confirmed, or until nothing can be left.
type releaser struct {
	sender *Sender

	mu    sync.Mutex
	first jobs // not tried yet
	retry jobs // tried
	lost  jobs // of lost holds, which keep no other waiting: an outage may leave thousands that end soon
	open  int  // not confirmed, those under way included
}

// jobs is a list of releases and the number of goroutines that work it off.
type jobs struct {
	list    []job
	workers int
	max     int
}

// job is one release.
type job struct {
	request *Request
	until   time.Time // by the lock model nothing of the request is alive after this
	err     error     // of the last try
	pause   Backoff   // before the next one, after the first
}

// PendingReleases returns how many releases in the background are not confirmed.
func (d *Sender) PendingReleases() int {
	d.releaser.mu.Lock()
	defer d.releaser.mu.Unlock()
	return d.releaser.open
}

// add has what r has at the store released in the background.
func (k *releaser) add(r *Request, urgent bool) {
	life := r.req.TTL
	if r.req.Queue {
		life = max(life, 2*r.req.WaitTTL) // a place may be granted at its end
	}
	// A request that is still on its way may be applied as late as its timeout.
	// That is also longer than a pause, so none ends later than what there is to release.
	pause := Backoff{Limit: min(200*time.Millisecond, r.config.Timeout)}
	j := job{r, time.Now().Add(r.config.Timeout + life), ErrUnavailable, pause}
	k.mu.Lock()
	k.open++
	k.mu.Unlock()
	if urgent {
		k.put(&k.first, j)
	} else {
		k.put(&k.lost, j)
	}
}

// take returns the next job, or ends the worker.
func (k *releaser) take(q *jobs) (job, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(q.list) == 0 {
		q.workers--
		return job{}, false
	}
	j := q.list[0]
	q.list[0] = job{} // so that the list does not keep what is done
	if q.list = q.list[1:]; len(q.list) == 0 {
		q.list = nil
	}
	return j, true
}

// work does the jobs of a list until none is left. A job of which by the lock model nothing is left is
// given up: after an outage, one call for each of many thousands would keep the newer ones waiting.
func (k *releaser) work(q *jobs) {
	defer k.sender.busy.Done()
	j, ok := k.take(q)
	defer func() {
		if ok { // the store has ended this goroutine: another takes its place
			j.pause.Sleep(k.sender.releases.Done())
			k.put(&k.retry, j)
			k.sender.busy.Add()
			go k.work(q)
		}
	}()
	for ; ok; j, ok = k.take(q) {
		if time.Now().After(j.until) {
			k.sender.warn("dlock: gave up releasing; the lease has run out by itself",
				"name", j.request.Name(), "id", store.Short(j.request.ID()), "error", j.err)
			k.done(j)
			continue
		}
		j.err = k.sender.release(j.request.Ref(), time.Now(), j.request.config.Timeout)
		switch {
		case errors.Is(j.err, store.ErrClosed):
			// No call can succeed any more. The job stays counted as open, so that Close says so; the
			// lease ends what is there.
			j.request.markCleared()
		case settled(j.err):
			k.done(j)
		case q == &k.first:
			k.put(&k.retry, j)
		default:
			j.pause.Sleep(k.sender.releases.Done())
			k.put(q, j)
		}
	}
}

// done ends a job.
func (k *releaser) done(j job) {
	k.mu.Lock()
	k.open--
	k.mu.Unlock()
	j.request.markCleared()
}

// put appends a job and starts a worker if one more is allowed.
func (k *releaser) put(q *jobs, j job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q.list = append(q.list, j)
	if q.workers < q.max {
		q.workers++
		k.sender.busy.Add()
		go k.work(q)
	}
}
