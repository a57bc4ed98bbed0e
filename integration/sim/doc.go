// Package sim is the deterministic simulation of dlock: real clients over the
// memory store in a synctest bubble, with faults between them, and checkers
// that judge what came of it.
//
// A seed draws a plan: two to eight clients, what their tasks do, and the faults
// that they meet, none, one kind or a pair. What happens is written down as a
// history: each call of the store as its client saw it, each arrival at the
// store, each claim of a lock. Cheap checkers look at the history first, then
// Porcupine decides whether the store's answers have an order that the model of
// package store allows. All of it is drawn from the seed but the order in
// which goroutines run at one moment, so a failure is also kept as a file, with
// its plan and its history.
//
//	go test ./sim -v                            # 300 histories
//	go test ./sim -v -sim.histories=20000       # more, with the seeds from 1 on
//	go test ./sim -v -sim.histories=1000000 -sim.for=1h -timeout=2h
//	go test ./sim -v -sim.seed=17               # one, many times over
//	go test ./sim -v -sim.quorum=3              # over a quorum of three stores
//	go test ./sim -v -sim.judge=history-17.json # a kept history, again
package sim
