package real

import (
	"time"

	"golang.org/x/sys/unix"
)

// moment is a reading of the machine's monotonic clock, in nanoseconds. All
// processes of a history read the same clock, so their records can be compared
// without any allowance for skew, which a wall clock would need.
type moment int64

// never is later than all that happens.
const never = moment(1<<63 - 1)

func now() moment {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // there is no machine without it
	}
	return moment(t.Nano())
}

func (m moment) plus(d time.Duration) moment { return m + moment(d) }

func (m moment) since(earlier moment) time.Duration { return time.Duration(m - earlier) }
