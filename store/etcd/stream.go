package etcd

import (
	"context"
	"errors"
	"reflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// A watch of etcd's client outlives its connection: it goes on behind the last revision that it has seen, and tells
// nothing of the break. After a restart without the data, or with those of a snapshot, revisions begin lower, and such
// a watch is silent until they have come to where they had been; its waiters would ask when their retry time is over.
// So the watches here end with their connection, and when the next one is open, the waiters look.

// watcherOf returns the watcher to use with a client, and whether its watches end with their connection. They do not
// where the program has put another watcher in the place of the client's, such as one for a namespace.
func watcherOf(c *clientv3.Client) (w clientv3.Watcher, ends bool) {
	if reflect.TypeOf(c.Watcher) != reflect.TypeOf(clientv3.NewWatchFromWatchClient(nil, nil)) {
		return c.Watcher, false
	}
	return clientv3.NewWatchFromWatchClient(endingWatches{pb.NewWatchClient(c.ActiveConnection())}, c), true
}

// endingWatches opens streams of watches that end with their connection.
type endingWatches struct{ pb.WatchClient }

func (w endingWatches) Watch(ctx context.Context, opts ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	stream, err := w.WatchClient.Watch(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return endingStream{stream}, nil
}

type endingStream struct{ pb.Watch_WatchClient }

// errStreamEnded carries no code of gRPC's, by which etcd's client sees what it can do again.
var errStreamEnded = errors.New("etcd: the connection of a watch has ended")

func (s endingStream) Recv() (*pb.WatchResponse, error) {
	answer, err := s.Watch_WatchClient.Recv()
	if err != nil {
		return nil, errStreamEnded
	}
	return answer, nil
}
