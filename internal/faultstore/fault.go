package faultstore

import (
	"context"
	"errors"
	"time"
)

// ErrTransport is what a caller gets whose request or reply was lost: an error
// that matches no sentinel, so an unknown outcome.
var ErrTransport = errors.New("faultstore: connection reset")

// Fault is what happens to a call. deliver sends it on, to the next fault or
// the store behind; a fault calls it never, once or several times, also after
// it has returned. A test may write its own.
type Fault func(ctx context.Context, deliver func(context.Context) Result) Result

type sentKey struct{}

// sent says that the request is on its way: the store behind does it when it
// arrives, whether or not the caller still waits, whose ctx the faults go by.
func sent(ctx context.Context) context.Context { return context.WithValue(ctx, sentKey{}, true) }

// Every matches all calls.
func Every(Call) bool { return true }

// Nth matches the calls with these numbers, counted from 1 for each Op.
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

// DropRequest loses the request; the caller learns of a broken connection at once.
func DropRequest() Fault { return Answer(ErrTransport) }

// DropReply lets the store do it; the caller learns of a broken connection.
func DropReply() Fault { return AnswerAfter(ErrTransport) }

// Mute loses the request, and the caller hears nothing until its ctx ends.
func Mute() Fault {
	return func(ctx context.Context, _ func(context.Context) Result) Result {
		<-ctx.Done()
		return Result{Err: ctx.Err()}
	}
}

// MuteReply lets the store do it, and the caller hears nothing until its ctx ends.
func MuteReply() Fault {
	return func(ctx context.Context, deliver func(context.Context) Result) Result {
		deliver(ctx)
		<-ctx.Done()
		return Result{Err: ctx.Err()}
	}
}

// Answer loses the request and answers err.
func Answer(err error) Fault {
	return func(context.Context, func(context.Context) Result) Result { return Result{Err: err} }
}

// AnswerAfter lets the store do it and answers err all the same.
func AnswerAfter(err error) Fault {
	return func(ctx context.Context, deliver func(context.Context) Result) Result {
		deliver(ctx)
		return Result{Err: err}
	}
}

// DelayRequest keeps the request on its way for d. A caller whose ctx ends
// before does not hold it up: the store does it when it arrives.
func DelayRequest(d time.Duration) Fault {
	return delayRequest(func() { time.Sleep(d) })
}

// HoldRequest is DelayRequest until release is closed.
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

// DelayReply keeps the reply on its way for d; the store does it at once.
func DelayReply(d time.Duration) Fault {
	return delayReply(func() { time.Sleep(d) })
}

// HoldReply is DelayReply until release is closed.
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

// Pause stops the calling goroutine, as if its process were stopped there: for
// before when it is about to send, and for after with the reply in its hands.
// Its ctx does not wake it, and what it then sends arrives.
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

// Duplicate has the store do it twice in a row; the caller gets the first answer.
func Duplicate() Fault {
	return func(ctx context.Context, deliver func(context.Context) Result) Result {
		r := deliver(ctx)
		deliver(sent(ctx))
		return r
	}
}

// DuplicateAfter has the store do it again d later.
func DuplicateAfter(d time.Duration) Fault {
	return duplicateLater(func() { time.Sleep(d) })
}

// DuplicateWhen has the store do it again when release is closed.
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
