package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/store"
)

// The nodes below the root:
//
//	locks/NAME        the record of a name, while something lives in it
//	locks/NAME/ROOM   empty; see snapshot.room
//	wake/ID           ephemeral: the request with that id waits, and its handle watches this
//	clock             written to ask for the leader's clock
const (
	locksFolder = "/locks"
	wakeFolder  = "/wake"
	clockNode   = "/clock"
)

// plain are the bytes that stand for themselves in the name of a node.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_:@+=,"

// namePath is the path of a name's record.
func (s *Store) namePath(name string) string { return s.root + locksFolder + "/" + nodeOf(name) }

// nodeOf is the node of a name. A byte that is not plain is written as % and two
// hexadecimal digits.
func nodeOf(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; strings.IndexByte(plain, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// nameOf is the name of a node, or false if the node is none of this package's.
func nameOf(node string) (name string, ok bool) {
	name, err := url.PathUnescape(node)
	return name, err == nil && nodeOf(name) == node
}

func (s *Store) wakePath(id string) string { return s.root + wakeFolder + "/" + id }

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
	folders = append(folders, s.root, s.root+locksFolder, s.root+wakeFolder, s.root+clockNode)
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

// List implements [store.Lister]: it reads every record.
func (s *Store) List(ctx context.Context) ([]string, error) {
	var all []string
	err := s.run(ctx, func() (err error) {
		all, err = s.allNames()
		return err
	})
	if err != nil {
		return nil, err
	}
	used := make([]bool, len(all))
	errs := each(len(all), func(i int) (err error) {
		used[i], err = s.settle(ctx, all[i])
		return err
	})
	var names []string
	for i, name := range all {
		switch {
		case errors.Is(errs[i], store.ErrForeignKey):
		case errs[i] != nil:
			return nil, errs[i]
		case used[i]:
			names = append(names, name)
		}
	}
	return names, nil
}

// settle removes what has expired, promotes, and says whether the name is in use then.
func (s *Store) settle(ctx context.Context, name string) (used bool, err error) {
	var last *step
	err = s.update(ctx, operation{name: name, do: func(st *step) error {
		st.record.Settle(&st.call)
		last = st
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
