package quorum

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/dlock-go/dlock/store"
)

// Why nothing of an earlier try can harm a later one, and why tokens still strictly increase. A try is one use of an
// acquisition id at one node. The node knows it by an id of its own, which derives from the acquisition id, the node and
// the number of the try. No other try of the handle has that number. A release that was sent ends a try: the next
// request to that node is another one.
//
//  1. A late release finds its own try only. So a vote of a later try ends by its own release, with its lease, or with
//     the data of the node, as if there had been no earlier try.
//  2. A late request can make a hold of its own try only. The release of a try whose request is unanswered buries it,
//     so this hold cannot come after the release. It is not renewed, and a late answer is noted of its own try
//     only.
//  3. A late answer to a renewal or a raise is about the try that was asked. It counts in its own call only.
//  4. So at each node the votes of two owners exclude each other as the holds do. Two majorities have a node in common.
//     No owner is granted the lock beside a holder.
//  5. What an earlier try left belongs to the same owner, so the node takes a later try for a re-entry, and
//     answers with the old token. That token may have been reported. A new grant of an owner without a
//     hold here takes a token above all that this handle has seen, if a vote has such an answer.
//  6. What an earlier try left began after each hold of another owner that counted there had ended, because the
//     two exclude each other. So the old token is above the tokens of those. Together with 5, a new
//     token is above each token that was reported before: the rest is the proof of commit.
//
// Package internal/explore checks this, and finds the error when tries share an id or when a re-entry's token is taken
// for a new one.

// alias is the id by which a node knows a try of an acquisition, or an owner of this handle. It begins as the original
// does, by which people recognize it. The salt is the handle's.
func alias(original, salt string, node, try int) string {
	text := fmt.Appendf(nil, "%s %d %d %s", salt, node, try, original)
	sum := sha256.Sum256(text)
	return store.Short(original) + hex.EncodeToString(sum[:])[:32-6]
}
