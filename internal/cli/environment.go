package cli

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock"
)

// The variables that dlock run gives its command. A program that uses dlock as a
// library re-enters with ParseOwner(DLOCK_OWNER). heldVariable has the names and owners
// of all runs around the command, as a query string.
const (
	nameVariable  = "DLOCK_NAME"
	tokenVariable = "DLOCK_TOKEN"
	ownerVariable = "DLOCK_OWNER"
	heldVariable  = "DLOCK_HELD"
)

// ownerFor returns the owner that a run takes the lock with. It is the owner of the run
// around it that holds the same name. For another name it is a new owner: two runs
// inside one would not exclude each other otherwise.
//
// Where a program that is no dlock run has set DLOCK_OWNER alone, that owner is meant.
// Over a quorum an owner belongs to one process: a run inside one of the same name, or with
// the owner of a program, would wait for that one. So both are refused.
func ownerFor(name string, overQuorum bool, getenv func(string) string) (dlock.Owner, error) {
	text := getenv(ownerVariable)
	if held := getenv(heldVariable); held != "" {
		owners, err := url.ParseQuery(held)
		if err != nil {
			return dlock.Owner{}, usage("%s is malformed", heldVariable)
		}
		text = owners.Get(name)
		if text != "" && overQuorum {
			return dlock.Owner{}, usage("a run around this one holds %q, and over a quorum no other process can re-enter it: this run would wait for that one", name)
		}
	}
	switch {
	case text == "":
		return dlock.NewOwner(), nil
	case overQuorum:
		return dlock.Owner{}, usage("%s is set, and over a quorum no other process can use an owner: unset it", ownerVariable)
	}
	owner, err := dlock.ParseOwner(text)
	if err != nil {
		return dlock.Owner{}, usage("%s is not an owner: %v", ownerVariable, err)
	}
	return owner, nil
}

// environment returns the variables of a command that runs under the hold.
func environment(outer []string, hold *dlock.Hold) []string {
	held := url.Values{}
	env := slices.DeleteFunc(slices.Clone(outer), func(variable string) bool {
		key, value, _ := strings.Cut(variable, "=")
		if key == heldVariable {
			held, _ = url.ParseQuery(value) // ownerFor has parsed it before
		}
		return slices.Contains([]string{nameVariable, tokenVariable, ownerVariable, heldVariable}, key)
	})
	owner := hold.Owner().String()
	held.Set(hold.Name(), owner)
	return append(env,
		nameVariable+"="+hold.Name(),
		tokenVariable+"="+strconv.FormatUint(hold.Token(), 10),
		ownerVariable+"="+owner,
		heldVariable+"="+held.Encode(),
	)
}
