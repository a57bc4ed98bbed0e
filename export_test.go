package dlock

// NamesInUse returns how many names a client keeps something of.
func NamesInUse(c *Client) (n int) {
	for i := range c.names.shards {
		sh := &c.names.shards[i]
		sh.mu.Lock()
		n += len(sh.names)
		sh.mu.Unlock()
	}
	return n
}
