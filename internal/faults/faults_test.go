package faults

import (
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// A fault keeps its beginning while its text changes.
func TestFaultKeepsItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Record
		began := time.Now()
		full, broken := errors.New("full"), errors.New("broken")
		for i, step := range []struct {
			err     error
			changed bool
			want    []Fault
		}{
			{nil, false, nil},
			{full, true, []Fault{{"not stored: full", began.Add(time.Second)}}},
			{broken, false, []Fault{{"not stored: broken", began.Add(time.Second)}}},
			{nil, true, nil},
			{nil, false, nil},
			{full, true, []Fault{{"not stored: full", began.Add(5 * time.Second)}}},
		} {
			if changed := r.Set("not stored", step.err); changed != step.changed || !reflect.DeepEqual(r.Present(), step.want) {
				t.Errorf("SAFE-17 step %d: %v, %v", i, changed, r.Present())
			}
			time.Sleep(time.Second)
		}
	})
}
