package real

import "github.com/dlock-go/dlock/store"

// checkSeen: at no moment are there two holders that exclude each other, and an
// id is gone for good once its release is confirmed. That it is remains true when
// a copy of its request arrives later, as long as the store has kept its data.
func (e *evidence) checkSeen(j *judgement) {
	type id struct{ name, short, owner string } // the beginnings of two ids are alike now and then
	released := map[id]moment{}
	for _, r := range e.records {
		if r.Op == opRelease && (r.Outcome == done || r.Outcome == lost) {
			key := id{r.Name, store.Short(r.ID), store.Short(r.Owner)}
			if first, ok := released[key]; !ok || r.Return < first {
				released[key] = r.Return
			}
		}
	}
	told := map[id]bool{}
	var look []record // the holders of one name at one moment
	for _, r := range e.records {
		if r.Op != opSeen {
			continue
		}
		key := id{r.Name, r.ID, r.Owner}
		if gone, ok := released[key]; ok && gone < r.Call && !told[key] && e.judged(gone, r.Return) {
			told[key] = true
			j.violation("%s is %s at %d with token %d, in %q, though its release was confirmed at %d", r.ID, r.Outcome, r.Call, r.Token, r.Name, gone)
		}
		if r.Outcome != held {
			continue
		}
		if len(look) > 0 && (look[0].Call != r.Call || look[0].Name != r.Name) {
			look = look[:0]
		}
		for _, x := range look {
			if x.Owner != r.Owner && !(x.Shared && r.Shared) {
				j.violation("at %d %s (token %d) and %s (token %d) both hold %q", r.Call, x.ID, x.Token, r.ID, r.Token, r.Name)
			}
		}
		look = append(look, r)
	}
}
