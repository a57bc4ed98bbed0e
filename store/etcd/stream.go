package etcd

import (
	"context"
	"errors"
	"reflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// A watch of etcd's client outlives its connection: it goes on behind the last revision that it has seen, and
// tells nobody. After a restart without the data, or with those of a backup, revisions begin lower. Such a
// watch is silent until they have come to where they had been, and what it tells then does not go with what was
// known before: a hold in between is missing, and somebody is granted beside it. So the watches here end with
// their connection, as no server comes back on one, and what they told ends with them.

// watcherOf returns the watcher to use with a client, and whether its watches end with their connection. That
// can be had only where nobody has put one of his own in the place of the client's, such as one for a
// namespace.
func watcherOf(c *clientv3.Client) (w clientv3.Watcher, ends bool) {
	if reflect.TypeOf(c.Watcher) != reflect.TypeOf(clientv3.NewWatchFromWatchClient(nil, nil)) {
		return c.Watcher, false
	}
	return clientv3.NewWatchFromWatchClient(mortalWatches{pb.NewWatchClient(c.ActiveConnection())}, c), true
}

// mortalWatches opens streams of watches that are not opened again.
type mortalWatches struct{ pb.WatchClient }

func (w mortalWatches) Watch(ctx context.Context, opts ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	stream, err := w.WatchClient.Watch(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return mortalStream{stream}, nil
}

type mortalStream struct{ pb.Watch_WatchClient }

// errStreamEnded carries no code of gRPC's, by which etcd's client sees what it can do again.
var errStreamEnded = errors.New("etcd: the connection of a watch has ended")

func (s mortalStream) Recv() (*pb.WatchResponse, error) {
	answer, err := s.Watch_WatchClient.Recv()
	if err != nil {
		return nil, errStreamEnded
	}
	return answer, nil
}
