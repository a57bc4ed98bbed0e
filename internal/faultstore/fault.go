package faultstore

import (
	"context"
	"errors"
	"time"
)

// ErrTransport is the error of a call whose request or reply was lost. It matches no sentinel, so it
// means an unknown outcome.
var ErrTransport = errors.New("faultstore: connection reset")

// Fault changes one call. It calls deliver, which is the next fault or the store behind, never, once
// or several times, also after it has returned. A test may write its own.
type Fault func(ctx context.Context, deliver func(context.Context) Result) Result

type sentKey struct{}

// sent marks a request that is on its way. The store behind does it when it arrives, also if ctx has
// ended by then. The faults between end with ctx.
func sent(ctx context.Context) context.Context { return context.WithValue(ctx, sentKey{}, true) }

// Every matches all calls.
func Every(Call) bool { return true }

// Nth matches the calls with these numbers. Each Op counts from 1.
func Nth(numbers ...int) func(Call) bool {
	return func(c Call) bool {
		for _, n := range numbers {
			if c.N == n {
				return true
			}
		}
		return false
	}
}

// From matches the n-th call and all after it.
func From(n int) func(Call) bool { return func(c Call) bool { return c.N >= n } }

// DropRequest loses the request. The caller gets an error at once.
func DropRequest() Fault { return Answer(ErrTransport) }

// DropReply lets the store do the request. The caller gets an error.
func DropReply() Fault { return AnswerAfter(ErrTransport) }

// Mute loses the request. The caller gets no answer until its ctx ends.
func Mute() Fault {
	return func(ctx context.Context, _ func(context.Context) Result) Result {
		<-ctx.Done()
		return Result{Err: ctx.Err()}
	}
}

// MuteReply lets the store do the request. The caller gets no answer until its ctx ends.
func MuteReply() Fault {
	return func(ctx context.Context, deliver func(context.Context) Result) Result {
		deliver(ctx)
		<-ctx.Done()
		return Result{Err: ctx.Err()}
	}
}

// Answer loses the request and returns err.
func Answer(err error) Fault {
	return func(context.Context, func(context.Context) Result) Result { return Result{Err: err} }
}

// AnswerAfter lets the store do the request and returns err.
func AnswerAfter(err error) Fault {
	return func(ctx context.Context, deliver func(context.Context) Result) Result {
		deliver(ctx)
		return Result{Err: err}
	}
}

// DelayRequest keeps the request on its way for d. The store does it when it arrives, also if the
// caller's ctx has ended by then.
func DelayRequest(d time.Duration) Fault {
	return delayRequest(func() { time.Sleep(d) })
}

// HoldRequest keeps the request on its way until release is closed, as DelayRequest does.
func HoldRequest(release <-chan struct{}) Fault {
	return delayRequest(func() { <-release })
}

func delayRequest(pause func()) Fault {
	return func(ctx context.Context, deliver func(context.Context) Result) Result {
		reply := make(chan Result, 1)
		go func() {
			pause()
			reply <- deliver(sent(ctx))
		}()
		return first(ctx, reply)
	}
}

// DelayReply keeps the reply on its way for d. The store does the request at once.
func DelayReply(d time.Duration) Fault {
	return delayReply(func() { time.Sleep(d) })
}

// HoldReply keeps the reply on its way until release is closed, as DelayReply does.
func HoldReply(release <-chan struct{}) Fault {
	return delayReply(func() { <-release })
}

func delayReply(pause func()) Fault {
	return func(ctx context.Context, deliver func(context.Context) Result) Result {
		r, reply := deliver(ctx), make(chan Result, 1)
		go func() {
			pause()
			reply <- r
		}()
		return first(ctx, reply)
	}
}

// Pause stops the calling goroutine, as if its process were stopped: for before when it is about to
// send, and for after when it has the reply. Its ctx does not wake it, and the request arrives.
func Pause(before, after time.Duration) Fault {
	return func(ctx context.Context, deliver func(context.Context) Result) Result {
		time.Sleep(before)
		r := deliver(sent(ctx))
		time.Sleep(after)
		return r
	}
}

func first(ctx context.Context, reply <-chan Result) Result {
	select {
	case r := <-reply:
		return r
	case <-ctx.Done():
		return Result{Err: ctx.Err()}
	}
}

// Duplicate makes the store do the request twice in a row. The caller gets the first answer.
func Duplicate() Fault {
	return func(ctx context.Context, deliver func(context.Context) Result) Result {
		r := deliver(ctx)
		deliver(sent(ctx))
		return r
	}
}

// DuplicateAfter makes the store do the request again after d.
func DuplicateAfter(d time.Duration) Fault {
	return duplicateLater(func() { time.Sleep(d) })
}

// DuplicateWhen makes the store do the request again when release is closed.
func DuplicateWhen(release <-chan struct{}) Fault {
	return duplicateLater(func() { <-release })
}

func duplicateLater(pause func()) Fault {
	return func(ctx context.Context, deliver func(context.Context) Result) Result {
		r := deliver(ctx)
		go func() {
			pause()
			deliver(sent(ctx))
		}()
		return r
	}
}
