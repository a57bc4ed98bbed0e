package property

// token is a fencing token whose number the model does not know before the
// store has told it in some answer.
type token struct {
	order int // among those issued for its name
	value uint64
	span  uint64
}

// tokens are those issued for one name, in their order.
type tokens struct {
	list  []*token
	floor uint64 // the greatest that an answer told as the last one issued
	from  int    // floor was told before this one was issued
}

func (s *tokens) next(span int) *token {
	t := &token{order: len(s.list), span: uint64(span)}
	s.list = append(s.list, t)
	return t
}

func later(a, b *token) *token {
	if a == nil || b.order > a.order {
		return b
	}
	return a
}

// is notes that a token has a value, and returns what is wrong with that: it
// must not change, and must be greater than all that those before it reserved.
func (s *tokens) is(t *token, value uint64) string {
	switch {
	case t.value == value && value > 0:
		return ""
	case t.value > 0:
		return "differs from the token told for this grant before"
	case value == 0:
		return "is zero"
	}
	t.value = value
	for _, other := range s.list {
		switch {
		case other.value == 0 || other == t:
		case other.order < t.order && value < other.value+other.span:
			return "is not greater than the tokens reserved by an earlier grant"
		case other.order > t.order && other.value < value+t.span:
			return "reserves tokens of a later grant"
		}
	}
	if t.order >= s.from && value <= s.floor {
		return "is not greater than the last token told before it was issued"
	}
	return ""
}

// last notes what an answer told as the last token issued so far. The counter
// may serve other names too, so it may be greater than what this name had.
func (s *tokens) last(value uint64) string {
	for _, t := range s.list {
		if t.value > 0 && value < t.value+t.span-1 {
			return "is less than a token issued before"
		}
	}
	if value < s.floor {
		return "is less than what was told before"
	}
	if value > s.floor {
		s.floor, s.from = value, len(s.list)
	}
	return ""
}
