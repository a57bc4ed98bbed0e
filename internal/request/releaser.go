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
	// maxRetries bounds the goroutines that repeat releases and that release holds
	// which were lost. Both can wait: their leases end by themselves.
	maxRetries = 8
	// crowd is how many releases that wait are too many to try those once more of
	// which, by the lock model, nothing is left. The list is bounded so in an outage.
	crowd = 1000
)

// releaser releases in the background what nobody holds or waits for: places and
// late grants of calls that gave up, lost holds, releases without a known outcome.
// It goes on until the store has confirmed, or until nothing can be left.
type releaser struct {
	sender *Sender

	mu    sync.Mutex
	first jobs // not tried yet
	retry jobs // tried, or not urgent
	open  int  // not confirmed, those under way included
}

// jobs is a list of releases and the number of goroutines that work it off.
type jobs struct {
	list    []job
	workers int
	max     int
}

type job struct {
	request *Request
	ref     store.Ref
	until   time.Time // by the lock model nothing of ref is alive after this
}

func (k *releaser) init(d *Sender) {
	k.sender, k.first.max, k.retry.max = d, maxFirstTries, maxRetries
}

func (k *releaser) pending() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open
}

// add has what r has at the store released in the background.
func (k *releaser) add(r *Request, urgent bool) {
	life := r.req.TTL
	if r.req.Queue {
		life = max(life, 2*r.req.WaitTTL) // a place may be granted at its end
	}
	// A request that is still on its way may be applied as late as its timeout.
	j := job{r, r.Ref(), time.Now().Add(r.config.Timeout + life)}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open++
	if urgent {
		k.put(&k.first, j)
	} else {
		k.put(&k.retry, j)
	}
}

// put appends a job and starts a worker if one more is allowed. k.mu is locked.
func (k *releaser) put(q *jobs, j job) {
	q.list = append(q.list, j)
	if q.workers < q.max {
		q.workers++
		k.sender.busy.Add()
		go k.work(q)
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

// work does the jobs of a list until none is left. After a failure a worker that
// repeats pauses, because the store fails rather than the job, and takes the next.
func (k *releaser) work(q *jobs) {
	defer k.sender.busy.Done()
	pause := Backoff{Limit: 200 * time.Millisecond}
	for {
		j, ok := k.take(q)
		if !ok {
			return
		}
		// After an outage the leases of most jobs have run out. One call for each of
		// many thousands would keep the newer ones waiting.
		if time.Now().After(j.until) && k.crowded() {
			k.giveUp(j, errCrowded)
			continue
		}
		err := k.sender.release(j.ref, time.Now(), j.request.config.Timeout)
		switch {
		case errors.Is(err, store.ErrClosed):
			// No call can succeed any more. The job stays counted as open, so that
			// Close says so; the lease ends what is there.
			j.request.markCleared()
		case settled(err):
			pause.Reset()
			k.done(j)
		case time.Now().After(j.until):
			k.giveUp(j, err)
		default:
			k.again(q, j)
			if q == &k.retry {
				pause.Sleep(k.sender.releases.base.Done())
			}
		}
	}
}

// again puts a job back that has failed in q. A worker that repeats takes it itself.
func (k *releaser) again(q *jobs, j job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if q == &k.retry {
		q.list = append(q.list, j)
	} else {
		k.put(&k.retry, j)
	}
}

func (k *releaser) crowded() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.first.list)+len(k.retry.list) >= crowd
}

// errCrowded is why a release is given up that came to its turn too late to be tried again.
var errCrowded = errors.New("too many other releases wait")

func (k *releaser) giveUp(j job, err error) {
	k.sender.log.Warn("dlock: gave up releasing; the lease has run out by itself",
		"name", j.ref.Name, "id", store.Short(j.ref.ID), "error", err)
	k.done(j)
}

func (k *releaser) done(j job) {
	k.mu.Lock()
	k.open--
	k.mu.Unlock()
	j.request.markCleared()
}
