package coretest

import "time"

// The defaults that tests calculate with. They are written out again on purpose: values taken
// from package dlock would follow every change of it, and no test would notice.
const (
	TTL          = 30 * time.Second
	WaitTTL      = 5 * time.Second
	StoreTimeout = 3 * time.Second
	AskEvery     = WaitTTL / 3 // a waiter asks the store again at least that often
	AskGap       = 10 * time.Millisecond

	// Patience is how long a test waits for anything. It is longer than all of these.
	Patience = time.Hour
)

// Margin is the documented difference between a lease and the time for which its hold is valid.
func Margin(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

// Validity is how long a hold with that lease is valid: all of it but 1 % and 2 ms.
func Validity(lease time.Duration) time.Duration { return lease - Margin(lease) }
