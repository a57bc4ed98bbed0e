package lockview_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/lockview"
	"github.com/dlock-go/dlock/store"
)

// client answers from a map. A name that is not in it cannot be inspected.
type client struct {
	states map[string]store.State
	err    error
	block  chan struct{} // if it is set, Inspect waits for it

	mu           sync.Mutex
	asking, most int
}

var errTest = errors.New("the store is away")

func (c *client) Inspect(_ context.Context, name string) (store.State, error) {
	c.mu.Lock()
	c.asking++
	c.most = max(c.most, c.asking)
	c.mu.Unlock()
	if c.block != nil {
		<-c.block
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking--
	state, ok := c.states[name]
	if !ok {
		return store.State{}, errTest
	}
	return state, nil
}

func (c *client) List(context.Context) ([]string, error) {
	// Not in their order.
	return slices.SortedFunc(maps.Keys(c.states), func(a, b string) int { return cmp.Compare(b, a) }), c.err
}

func (c *client) Break(context.Context, string) (int, error) { return 0, errTest }

func TestShow(t *testing.T) {
	for name, want := range map[string]string{
		"orders/7": "orders/7", "über": "über", "two words": "two words", `in"side`: `in"side`,
		"": `""`, " a": `" a"`, "a ": `"a "`, `"a"`: `"\"a\""`,
		"a\x1b[2J": `"a\x1b[2J"`, "a\n": `"a\n"`, "\x1bc": `"\x1bc"`, "\xff": `"\xff"`,
	} {
		assert.Equal(t, want, lockview.Show(name))
	}
}

func TestKeyAndBack(t *testing.T) {
	for _, name := range []string{"", "a", "a/b", "\xff\x00", "über"} {
		got, err := lockview.NameOf(lockview.Key(name))
		require.NoError(t, err)
		assert.Equal(t, name, got)
	}
	_, err := lockview.NameOf("a key!")
	assert.Error(t, err)
}

func TestNamesAreFoundAndSorted(t *testing.T) {
	c := &client{states: map[string]store.State{"Orders": {}, "orders/2": {}, "stock": {}}}
	view := lockview.New(c)
	for text, want := range map[string][]string{
		"": {"Orders", "orders/2", "stock"}, "ORD": {"Orders", "orders/2"}, "k": {"stock"}, "none": {},
	} {
		got, err := view.Names(t.Context(), text)
		require.NoError(t, err)
		assert.Equal(t, want, got, "%q", text)
	}
	c.err = errTest
	_, err := view.Names(t.Context(), "")
	assert.ErrorIs(t, err, errTest)
}

func TestStateChangesWithTheHolders(t *testing.T) {
	holders := []lockview.Entry{{ID: "a", Token: 1}, {ID: "b", Token: 2}}
	state := lockview.StateOf(holders)
	later := slices.Clone(holders)
	later[0].Remaining, later[0].Age = 7, 8 // times are no change
	assert.Equal(t, state, lockview.StateOf(later))
	later[1].Token = 3
	for _, other := range [][]lockview.Entry{nil, holders[:1], {{ID: "a", Token: 1}, {ID: "c", Token: 2}}, later} {
		assert.NotEqual(t, state, lockview.StateOf(other))
	}
}

func TestLockShowsHoldersAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{states: map[string]store.State{"a\n": {
			Holders: []store.Entry{{
				ID: "1", Owner: "o", Mode: store.Exclusive, Token: 1 << 60, Label: "l\xff",
				Remaining: 1500 * time.Millisecond, Age: time.Minute,
			}},
			Queue: []store.Entry{{ID: "2", Mode: store.Shared, Remaining: time.Second}},
		}}}
		lock, err := lockview.New(c).Lock(t.Context(), "a\n")
		require.NoError(t, err)
		assert.Equal(t, lockview.Lock{
			Name: `"a\n"`, Key: "YQo",
			Holders: []lockview.Entry{{
				ID: "1", Owner: "o", Mode: "exclusive", Token: 1 << 60, Label: "l?", Remaining: 1500, Age: 60_000,
			}},
			Queue: []lockview.Entry{{ID: "2", Mode: "shared", Remaining: 1000}},
		}, lock)
	})
}

// A store of an earlier version does not say how old an entry is. Then it is as old as this
// view knows it, and an entry of the same id that holds is another than the one that waited.
func TestAgeIsThatOfTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entry := store.Entry{ID: "1", Token: 0}
		c := &client{states: map[string]store.State{"a": {Queue: []store.Entry{entry}}}}
		view := lockview.New(c)
		age := func() (holds, waits []int64) {
			lock, err := view.Lock(t.Context(), "a")
			require.NoError(t, err)
			for _, e := range lock.Holders {
				holds = append(holds, e.Age)
			}
			for _, e := range lock.Queue {
				waits = append(waits, e.Age)
			}
			return holds, waits
		}
		_, waits := age()
		assert.Equal(t, []int64{0}, waits)
		time.Sleep(3 * time.Second)
		_, waits = age()
		assert.Equal(t, []int64{3000}, waits)
		c.states["a"] = store.State{Holders: []store.Entry{entry}}
		holds, _ := age()
		assert.Equal(t, []int64{0}, holds)

		// What is seen from time to time is remembered, however long it lasts.
		for range 5 {
			time.Sleep(9 * time.Minute)
			holds, _ = age()
		}
		assert.Equal(t, []int64{45 * 60_000}, holds)

		// What was not seen for more than ten minutes is forgotten.
		time.Sleep(20*time.Minute + 1)
		holds, _ = age()
		assert.Equal(t, []int64{0}, holds)
	})
}

// Locks inspects many names at once, but not all of them.
func TestLocksAsksSomeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{states: make(map[string]store.State), block: make(chan struct{})}
		var names []string
		for i := range 40 {
			name := fmt.Sprint(i)
			names = append(names, name)
			if i != 7 {
				c.states[name] = store.State{Queue: []store.Entry{{ID: name}}}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var locks []lockview.Lock
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			locks, err = lockview.New(c).Locks(ctx, names)
		}()
		synctest.Wait()
		assert.Equal(t, 32, c.most)
		close(c.block)
		<-done
		require.NoError(t, err)
		assert.Equal(t, 32, c.most)
		for i, lock := range locks {
			if assert.Equal(t, names[i], lock.Name); i != 7 {
				assert.Equal(t, names[i], lock.Queue[0].ID)
				assert.Empty(t, lock.Error)
			}
		}
		none := []lockview.Entry{}
		assert.Equal(t, lockview.Lock{Name: "7", Key: "Nw", Holders: none, Queue: none, Error: errTest.Error()}, locks[7])

		cancel()
		_, err = lockview.New(c).Locks(ctx, names[:1])
		assert.ErrorIs(t, err, context.Canceled)
	})
}
