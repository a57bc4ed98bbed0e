package conformance

import (
	"strings"
	"testing"
	"time"
)

// TestTortureJudge: what makes Torture fail.
func TestTortureJudge(t *testing.T) {
	at := func(token uint64, shared bool, from, to int) use {
		return use{token, shared, time.Unix(int64(from), 0), time.Unix(int64(to), 0)}
	}
	for name, test := range map[string]struct {
		uses []use
		want string
	}{
		"in order":           {[]use{at(1, false, 0, 2), at(2, false, 2, 3), at(3, true, 3, 9), at(4, true, 4, 5)}, ""},
		"overlap":            {[]use{at(1, false, 0, 3), at(2, false, 2, 3)}, "token 2 began 1s before the one with token 1"},
		"reader and writer":  {[]use{at(1, true, 0, 3), at(2, false, 2, 3)}, "token 2 began 1s before the one with token 1"},
		"behind a reader":    {[]use{at(1, true, 0, 9), at(2, true, 1, 2), at(3, false, 3, 4)}, "token 3 began 6s before the one with token 1"},
		"token falls":        {[]use{at(2, false, 0, 1), at(1, false, 2, 3)}, "token 1 was given after token 2"},
		"token repeats":      {[]use{at(2, false, 0, 1), at(2, false, 2, 3)}, "token 2 was given after token 2"},
		"readers' one token": {[]use{at(2, true, 0, 1), at(2, true, 2, 3)}, "token 2 was given twice"},
	} {
		if got := strings.Join(overlaps(test.uses), "\n"); test.want == "" != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
