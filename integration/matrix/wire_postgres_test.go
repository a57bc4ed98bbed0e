package matrix

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

type postgresServer struct{ url string }

func startPostgres(t *testing.T) server {
	return postgresServer{stores.NewDatabase(t, postgrestest.Start(t))}
}

func (s postgresServer) open(t *testing.T) *postgres.Store {
	t.Helper()
	h, err := postgres.Open(context.Background(), s.url+"&pool_max_conns=2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func (s postgresServer) near(t *testing.T) store.Store { return s.open(t) }

func (s postgresServer) far(t *testing.T) (store.Store, wire) {
	w := newCallsWire(s.open(t))
	return w, w
}
