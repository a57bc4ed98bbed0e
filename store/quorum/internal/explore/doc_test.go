// Package explore walks through everything that can happen to the protocol of the
// quorum store in a small world: three nodes, two or three clients, messages that
// are late, lost or out of order, leases that end, clocks that differ by the margin
// and a node that restarts empty. It finds every state that can be reached, and
// in each looks whether two clients may believe that they hold the lock, and
// whether a token was reported that is no greater than one reported before.
//
// Each guard of the protocol can be taken away, and then what it is there for is
// found, with the shortest way to it. That shows that the world is not too small.
// Time has no end in it. A client that gave up or released may have another attempt, with another id at the
// nodes. What the earlier attempt left at a node makes the later one a re-entry there.
// States that differ by the numbers of nodes and clients alone are one state.
//
// It is a model of the protocol, not the store itself: the store's own tests and the
// simulation run that. One exclusive lock, and no queues: a request that was refused asks again.
package explore
