// Package request carries one acquisition id to the store and back: the first
// request, repeats under the same id, events, late replies, and the release in the
// background of what nobody wants. It knows nothing of owners, queues or holds.
//
// A [Request] is sent on the caller's goroutine by [Request.Send] or [Request.Try].
// When the answer is "queued" or unknown, [Request.Poll] goes on in the background
// until the request is granted or refused. [Request.Abandon] and [Request.Release]
// end it. Whatever the order of replies and events, nothing of the id stays at the
// store afterwards.
package request
