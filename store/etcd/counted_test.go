package etcd

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/store"
)

// A key counts on each lease that it may hang on: Close would revoke one that has no keys, and a full one would get
// more.
func TestKeyCountsWhereItMayHang(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		counts := func(what string, l *lease, want int) {
			t.Helper()
			if l.keys != want {
				t.Errorf("%s: %d keys, want %d", what, l.keys, want)
			}
		}
		req := store.Request{Name: "a", ID: "1", Owner: "1", TTL: time.Hour, WaitTTL: time.Hour, Queue: true}
		a := &ask{s: s, req: req, idKeys: s.keys.keysOf(req.Name, req.Owner, req.ID, req.Mode), began: time.Now()}
		if err := a.track(t.Context()); err != nil {
			t.Fatal(err)
		}
		leaseFor := func(kind leaseKind) *lease {
			t.Helper()
			l, err := s.records.leaseFor(t.Context(), a.r, kind, 0)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		// The answer of the request for a place is lost. Then the lease is full, and there is another one.
		places := placesFor(req.WaitTTL)
		first := leaseFor(places)
		for range maxKeys {
			if _, err := s.leases.take(t.Context(), places, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.leaseForPlace(t.Context()); err != nil {
			t.Fatal(err)
		}
		counts("the place after it was asked for again", first, maxKeys)

		// A renewal for another time, whose answer is lost, may have moved the hold.
		before, after := leaseFor(holdsFor(time.Hour)), leaseFor(holdsFor(2*time.Hour))
		counts("the lease of the hold", before, 1)
		counts("the lease that it may be on", after, 1)
		s.records.note(a.r, a.since, held(4, 40), after, time.Hour)
		counts("the lease of the hold that was moved", after, 1)

		// It hangs on one that the record did not ask for.
		other, err := s.leases.take(t.Context(), holdsFor(3*time.Hour), 0)
		if err != nil {
			t.Fatal(err)
		}
		s.records.note(a.r, s.records.read(a.r), held(4, 40), other, time.Hour)
		counts("the lease that the hold was found on", other, 2)
		s.records.forget(a.r)
		counts("the lease of a hold that is gone", other, 1)
		counts("the lease before that", after, 0)
	})
}

// A lease whose keys went with it is given back: a place's, when the place has become a hold elsewhere.
func TestDeadLeaseIsForgotten(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		server := &lessor{}
		s.client.Lease = server
		if _, err := s.leases.take(t.Context(), placesFor(5*time.Second), time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		looks := server.looks
		time.Sleep(time.Minute)
		synctest.Wait()
		if server.looks > looks || len(s.leases.list()) > 0 {
			t.Errorf("%d leases, of which the server was asked %d times", len(s.leases.list()), server.looks-looks)
		}
	})
}
