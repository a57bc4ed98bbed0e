package core

// PretendHandles counts n more handles of the owner that has h.
func PretendHandles(h *Handle, n int) {
	o := h.turn.owner
	sh := h.shard()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o.live += int32(n)
	o.refs += n
}

// StopWatchdog has the watchdog do nothing any more, as in a process that was
// stopped: when it goes on, its own code may run before any timer has.
func StopWatchdog(c *Client) { c.dog.Close() }
