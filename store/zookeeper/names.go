package zookeeper

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/store"
)

// The nodes below the root:
//
//	locks/NAME        the record of a name, while something lives in it
//	locks/NAME/ROOM   empty; see snapshot.room
//	locks/NAME/ROOMID empty: the request with that id waits, and its handle watches this
//	clock             written to ask for the leader's clock
const (
	locksFolder = "/locks"
	clockNode   = "/clock"
)

// namePath is the path of a name's record.
func (s *Store) namePath(name string) string { return s.root + locksFolder + "/" + nodeOf(name) }

// nodeOf is the node of a name. What is special in a path is written as % and two
// hexadecimal digits. So is the dot, since a node cannot be named by dots alone.
func nodeOf(name string) string { return strings.ReplaceAll(url.PathEscape(name), ".", "%2E") }

// nameOf is the name of a node, or false if the node is none of this package's.
func nameOf(node string) (name string, ok bool) {
	name, err := url.PathUnescape(node)
	return name, err == nil && nodeOf(name) == node
}

// makeFolders makes the nodes that every handle needs, if they are missing. It
// asks before it writes: a user without the right to create them can do with
// nodes that an operator has made.
func (s *Store) makeFolders() error {
	var folders []string
	for i := 1; i < len(s.root); i++ {
		if s.root[i] == '/' {
			folders = append(folders, s.root[:i])
		}
	}
	folders = append(folders, s.root, s.root+locksFolder, s.root+clockNode)
	for _, path := range folders {
		if there, _, err := s.conn.Exists(path); err != nil {
			return err
		} else if there {
			continue
		}
		if _, err := s.conn.Create(path, nil, 0, s.acl); err != nil && err != zk.ErrNodeExists {
			return err
		}
	}
	return nil
}

// List implements [store.Lister]: it reads every record, and passes over those of other
// programs and users, but for a user who may read none.
func (s *Store) List(ctx context.Context) ([]string, error) {
	all, err := run(ctx, s, s.allNames)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var names []string
	var refused error
	each(all, func(name string) {
		used, failed := s.settle(ctx, name)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case used:
			names = append(names, name)
		case errors.Is(failed, store.ErrRefused):
			refused = failed
		case failed != nil && !errors.Is(failed, store.ErrForeignKey):
			err = failed
		}
	})
	if err == nil && len(names) == 0 {
		err = refused
	}
	if err != nil {
		return nil, err
	}
	return names, nil
}

// settle removes what has expired, promotes, and says whether the name is in use then.
func (s *Store) settle(ctx context.Context, name string) (used bool, err error) {
	last, err := s.update(ctx, operation{name: name, do: func(st *step) error {
		st.record.Settle(&st.call)
		return nil
	}})
	return err == nil && last.record.InUse(last.call.Now), err
}

// allNames reads the names that have a record.
func (s *Store) allNames() (names []string, err error) {
	if _, err := s.conn.Sync(s.root + locksFolder); err != nil {
		return nil, outcome(err)
	}
	nodes, _, err := s.conn.Children(s.root + locksFolder)
	if err != nil {
		return nil, outcome(err)
	}
	for _, node := range nodes {
		if name, ok := nameOf(node); ok {
			names = append(names, name)
		}
	}
	return names, nil
}
