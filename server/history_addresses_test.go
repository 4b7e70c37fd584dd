package server

import (
	"fmt"
	"testing"
	"time"
)

// Above the limit, the oldest content of the address that uses most is forgotten.
func TestHistoryForgetsLargestAddress(t *testing.T) {
	now := time.Now()
	leave := func(m *sentHistory, owner, what string, names int) {
		sts := stampList{}
		for i := range names {
			sts = piecesOf(append(sts.flat(), res(fmt.Sprint(i), "1").Stamp))
		}
		h := &statedContent{of: stateKeyOf("n", "t", what), content: content{each: sts}}
		m.hold(h, nil)
		m.end(now, owner, []*statedContent{h})
		now = now.Add(time.Second)
	}
	knows := func(m *sentHistory, what string) bool {
		_, ok := m.recall(now, stateKeyOf("n", "t", what))
		return ok
	}
	t.Run("SAFE-9 a stranger's streams displace only the stranger's content", func(t *testing.T) {
		m := newSentHistory(10)
		for i := range 3 {
			leave(m, "good", fmt.Sprint("good-", i), 1)
		}
		for i := range 100 {
			leave(m, "stranger", fmt.Sprint("stranger-", i), 1)
		}
		for i := range 3 {
			if !knows(m, fmt.Sprint("good-", i)) {
				t.Errorf("good-%d is forgotten", i)
			}
		}
		for i, want := range map[int]bool{92: false, 93: true, 99: true} {
			if got := knows(m, fmt.Sprint("stranger-", i)); got != want {
				t.Errorf("stranger-%d is remembered: %v", i, got)
			}
		}
		leave(m, "other", "other", 1)
		if !knows(m, "other") || !knows(m, "good-0") || knows(m, "stranger-93") || m.ended.Len() != 10 {
			t.Error("a new address is not remembered, or the wrong address lost its content")
		}
	})
	t.Run("SAFE-9 large content counts as several", func(t *testing.T) {
		m := newSentHistory(6)
		leave(m, "much", "much", 2000)
		for i := range 5 {
			leave(m, "good", fmt.Sprint("good-", i), 1)
		}
		leave(m, "other", "other", 1)
		if knows(m, "much") || !knows(m, "good-0") || !knows(m, "other") {
			t.Error(knows(m, "much"), knows(m, "good-0"), knows(m, "other"))
		}
	})
	t.Run("renewed content is not the oldest", func(t *testing.T) {
		m := newSentHistory(3)
		for _, what := range []string{"a", "b", "c", "a", "d"} {
			leave(m, "x", what, 1)
		}
		if !knows(m, "a") || knows(m, "b") {
			t.Error(knows(m, "a"), knows(m, "b"))
		}
	})
	t.Run("SAFE-9 each ended stream takes room, even with little content, and frees it", func(t *testing.T) {
		var l addressUsage
		left := func(owner string, bytes int) *endedContent {
			e := &endedContent{bytes: bytes}
			l.add(owner, e)
			return e
		}
		many := []*endedContent{left("many", 320), left("many", 320), left("many", 320)}
		large := left("large", 2000)
		if l.next() != many[0] {
			t.Error("three small contents count only their bytes")
		}
		l.remove(many[0])
		if l.next() != large {
			t.Error("the address with less content is still the largest")
		}
	})
	t.Run("SAFE-9 equal content counts once, and few contents are compared", func(t *testing.T) {
		for different, want := range map[int]int{maxCompared: maxCompared, maxCompared + 1: 2 * (maxCompared + 1)} {
			m := newSentHistory(1000)
			contents := make([]content, different)
			for i := range contents {
				contents[i].each = stampList{{{Name: fmt.Sprint(i)}}}
			}
			for range 2 {
				for _, c := range contents {
					h := &statedContent{of: stateKeyOf("n", "t", "v"), content: c}
					m.hold(h, nil)
					m.end(now, "x", []*statedContent{h})
				}
			}
			if n := m.ended.Len(); n != want {
				t.Errorf("of %d different contents %d are remembered, want %d", different, n, want)
			}
		}
	})
	t.Run("an address without content is forgotten", func(t *testing.T) {
		m := newSentHistory(3)
		for i := range 5 {
			leave(m, fmt.Sprint(i), fmt.Sprint(i), 1)
		}
		now = now.Add(historyTime)
		m.end(now, "", nil)
		if m.bytes != 0 || m.ended.Len() != 0 || len(m.left.names) != 0 || m.left.most.Len() != 0 {
			t.Error(m.bytes, m.ended.Len(), m.left)
		}
	})
}
