package etcd

import (
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Each operation of a call that was refused is sent alone. If the call may have been carried out all the same, that is a
// repetition: then a release that finds nothing has not lost its hold.
func TestCallThatMayHaveBeenCarriedOut(t *testing.T) {
	for _, test := range []struct {
		err          error
		alone, maybe bool
	}{
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max"), true, true},
		{rpctypes.ErrNoSpace, true, true},
		{rpctypes.ErrPermissionDenied, true, false},
		{status.Error(codes.Unavailable, ""), false, false},
	} {
		o := &operation{done: make(chan struct{})}
		new(combiner).finish([]*operation{o}, nil, test.err)
		if o.alone != test.alone || o.maybe != test.maybe {
			t.Errorf("%v: it is sent alone: %v, as a repetition: %v", test.err, o.alone, o.maybe)
		}
	}
}
