package dlock

import "fmt"

// Unfinished tells tests outside the package what a client has not put away:
// releases in the background, names in use, attempts that listen for events,
// calls of the store under way, waiters that are counted. It is "" when nothing is left.
func Unfinished(c *Client) string {
	names := 0
	for i := range c.names.shards {
		sh := &c.names.shards[i]
		sh.mu.Lock()
		names += len(sh.names)
		sh.mu.Unlock()
	}
	listening := 0
	for i := range c.pushes.shards {
		sh := &c.pushes.shards[i]
		sh.mu.Lock()
		listening += len(sh.waiting)
		sh.mu.Unlock()
	}
	calls, chores, waiters := c.calls.n.Load(), c.cleaner.left(), c.waiters.Load()
	if chores+names+listening+int(calls)+int(waiters) == 0 {
		return ""
	}
	return fmt.Sprintf("%d releases, %d names, %d listening attempts, %d calls, %d waiters",
		chores, names, listening, calls, waiters)
}

// Chores returns how many releases a client has to do in the background.
func Chores(c *Client) int { return c.cleaner.left() }
