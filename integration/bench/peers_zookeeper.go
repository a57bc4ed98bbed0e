package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store/zookeeper"
)

// dialZookeeper connects with the session timeout of dlock's zookeeper.Open.
func dialZookeeper(addr string) (*zk.Conn, error) {
	c, _, err := zk.Connect(strings.Split(addr, ","), 6*time.Second, zk.WithLogger(noLog{}))
	return c, err
}

// noLog is a log that keeps nothing.
type noLog struct{}

func (noLog) Printf(string, ...any) {}

func openDlockZookeeper(handoffs int) func(string, time.Duration) (client, error) {
	return func(addr string, lease time.Duration) (client, error) {
		s, err := zookeeper.Open("zk://" + addr)
		if err != nil {
			return nil, err
		}
		return newDlock(s, lease, handoffs)
	}
}

// recipe is the lock of the client's own module. Its lease is that of the session.
type recipe struct{ conn *zk.Conn }

func openRecipe(addr string, _ time.Duration) (client, error) {
	c, err := dialZookeeper(addr)
	return &recipe{c}, err
}

func (c *recipe) locker(name string, _ use) (locker, error) {
	return &recipeLocker{c.conn, zk.NewLock(c.conn, "/recipe/"+name, zk.WorldACL(zk.PermAll))}, nil
}

type recipeLocker struct {
	conn *zk.Conn
	lk   *zk.Lock
}

func (l *recipeLocker) lock(bool) error    { return l.lk.Lock() }
func (l *recipeLocker) unlock() error      { return l.lk.Unlock() }
func (l *recipeLocker) keep(time.Duration) {}
func (l *recipeLocker) lost() bool         { return l.conn.State() == zk.StateExpired }

// clearZookeeper deletes all nodes but ZooKeeper's own.
func clearZookeeper(e *zookeepertest.Ensemble) error {
	c, err := dialZookeeper(e.Members[0].Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	names, _, err := c.Children("/")
	for _, name := range names {
		if name != "zookeeper" {
			err = errors.Join(err, deleteTree(c, "/"+name))
		}
	}
	return err
}

func deleteTree(c *zk.Conn, path string) error {
	names, _, err := c.Children(path)
	for _, name := range names {
		err = errors.Join(err, deleteTree(c, path+"/"+name))
	}
	if err == nil {
		err = c.Delete(path, -1)
	}
	if errors.Is(err, zk.ErrNoNode) { // the server has removed a container or a session's node
		return nil
	}
	return err
}

// loadZookeeper is how many packets clients have sent, pings too.
func loadZookeeper(e *zookeepertest.Ensemble) (load, error) {
	n, err := e.Members[0].Received()
	if err != nil {
		return load{}, fmt.Errorf("the ZooKeeper server does not say how many packets it received: %w", err)
	}
	return load{requests: float64(n)}, nil
}
