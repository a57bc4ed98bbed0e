package model

import (
	"reflect"
	"testing"
	"time"
)

// TestRebase: provisional tokens become final and others stay; every deadline moves.
func TestRebase(t *testing.T) {
	r := Record{
		holds:  []entry{{id: "a", token: 7, deadline: 10}, {id: "b", token: 1003, deadline: 20}},
		queue:  []entry{{id: "c", deadline: 30}},
		buried: []grave{{"d", 40}},
	}
	r.Rebase(1000, 5000, time.Duration(5))
	want := Record{
		holds:  []entry{{id: "a", token: 7, deadline: 15}, {id: "b", token: 5003, deadline: 25}},
		queue:  []entry{{id: "c", deadline: 35}},
		buried: []grave{{"d", 45}},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v, want %+v", r, want)
	}
}
