package store

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// The value none is not valid among groups: it would release them.
func TestFrozenGroupsOfRestore(t *testing.T) {
	for flag, want := range map[string]string{
		"none": "", "edge=r3": "edge", "edge=r3,app=r4": "app edge",
		"none,edge=r3": "!", "edge=r3,none": "!", "edge": "!", "=r3": "!", "edge=r0": "!",
	} {
		t.Run("SAFE-15 "+flag, func(t *testing.T) {
			holds, err := (&restoreFlags{frozen: strings.Split(flag, ",")}).holds()
			got := strings.Join(slices.Sorted(maps.Keys(holds)), " ")
			if err != nil {
				got = "!"
			}
			if got != want || err == nil && holds == nil {
				t.Errorf("%v, %v", holds, err)
			}
		})
	}
	if holds, err := new(restoreFlags).holds(); holds != nil || err != nil {
		t.Errorf("without the flag: %v, %v", holds, err)
	}
}
