package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/xds"
)

// A node with several streams is one client, which came with the first and leaves with the last.
func TestClientCameWithItsFirstStream(t *testing.T) {
	var c clients
	begin := time.Unix(1000, 0)
	first, second := &Stream{ID: 1, Node: &xds.Node{ID: "n"}, Since: begin}, &Stream{ID: 2, Node: &xds.Node{ID: "n"}, Since: begin.Add(time.Hour)}
	if !c.come(first) || c.come(second) {
		t.Error("the second stream is another client")
	}
	if _, last := c.leave(first); last {
		t.Error("the client left with its first stream")
	}
	if since, last := c.leave(second); !last || !since.Equal(begin) {
		t.Errorf("it came at %v", since)
	}
}

// Errors of gRPC are the fault of the client if they are about its request.
func TestFaultOfReadErrors(t *testing.T) {
	own := reject(tooManyStreams, codes.ResourceExhausted, "own")
	if got := readError(own); !errors.Is(got, own) || status.Convert(got).Message() != "own" {
		t.Errorf("the server's own error becomes %v", got)
	}
	for code, want := range map[codes.Code]fault{codes.ResourceExhausted: tooLarge, codes.Internal: malformed, codes.Unimplemented: malformed} {
		r, ok := errors.AsType[*rejection](readError(status.Error(code, "grpc: about the message")))
		if !ok || r.fault != want || r.Code() != code {
			t.Errorf("%v: %v", code, r)
		}
	}
	gone := status.Error(codes.Canceled, "gone")
	if _, fault := errors.AsType[*rejection](readError(gone)); fault || readError(nil) != nil {
		t.Error("a client that has gone is at fault")
	}
}

// The time of a poll has 32 bits, and a call without a deadline is held as long as possible.
func TestHoldTimeOfPolls(t *testing.T) {
	for text, ok := range map[string]bool{"4294967295": true, "4294967296": false, "-1": false, "x": false} {
		if hold, err := HoldTime(text); (err == nil) != ok || ok && hold != MaxHold {
			t.Errorf("%s: %v %v", text, hold, err)
		}
	}
	if hold, err := holdOf(context.Background()); err != nil || hold != MaxHold {
		t.Errorf("without a deadline: %v %v", hold, err)
	}
	within(t, "with a deadline", func(t *testing.T) {
		for timeout, want := range map[time.Duration]time.Duration{time.Second: time.Second - margin, margin: 0, margin / 2: 0} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			if hold, err := holdOf(ctx); err != nil || hold != want {
				t.Errorf("%v: %v %v", timeout, hold, err)
			}
			cancel()
		}
	})
}

func TestLeaveOfNoStream(t *testing.T) {
	var none *Stream
	if none.Leave() || new(Stream).Leave() {
		t.Error("a stream that was never open leaves")
	}
}

// A drain begins once, and it is empty when its last stream has left.
func TestDrainBeginsOnce(t *testing.T) {
	d := newDrain()
	d.enter()
	if !d.begin() || d.begin() || d.enter() {
		t.Error("a drain begins twice, or lets a stream in")
	}
	select {
	case <-d.empty:
		t.Error("it is empty with a stream")
	default:
	}
	d.leave()
	<-d.empty
}

// All strings that the first request keeps count against the limit of its stream.
func TestHeldBytesOfARequest(t *testing.T) {
	names := []string{"a", "bc"}
	one := holds(&xds.Request{Names: names})
	if one <= 3 {
		t.Fatalf("%d bytes", one)
	}
	for name, r := range map[string]*xds.Request{
		"subscribe": {Subscribe: names}, "unsubscribe": {Unsubscribe: names},
	} {
		if got := holds(r); got != one {
			t.Errorf("%s: %d bytes, want %d", name, got, one)
		}
	}
	if got := holds(&xds.Request{Names: names, Subscribe: names, Unsubscribe: names, Version: "ver", Nonce: "nonce"}); got != 3*one+8 {
		t.Errorf("%d bytes, want %d", got, 3*one+8)
	}
	if got := holds(&xds.Request{Initial: []xds.Version{{Name: "a", Version: "bc"}, {Name: "d"}}}); got != 4+2*64 {
		t.Errorf("%d bytes of versions", got)
	}
}

// The budget for texts is used up exactly at its limit, and at half of it for nodes that refused before.
func TestTextBudgetLimits(t *testing.T) {
	now := time.Unix(1000, 0)
	for again, most := range map[bool]time.Duration{false: textSaved, true: textSaved / 2} {
		if x := (textBudget{owed: most - textMinimum, at: now}); !x.take(now, again) || x.owed != most {
			t.Errorf("again %v: the last of the budget is refused, %v owed", again, x.owed)
		}
		if x := (textBudget{owed: most - textMinimum + 1, at: now}); x.take(now, again) {
			t.Errorf("again %v: more than the budget is used", again)
		}
	}
	x := textBudget{owed: textSaved, at: now}
	if !x.take(now.Add(textShare*textMinimum), false) || x.owed != textSaved {
		t.Errorf("%v owed: a tenth of the time is not paid back", x.owed)
	}
}

// A number of places below zero is no limit, and zero places let no stream in.
func TestPlacesOfAdmission(t *testing.T) {
	for places, want := range map[int]bool{-1: true, 0: false, 1: true} {
		got := newAdmission(places).enter(nil, "n")
		if (got.turn == nil) != want {
			t.Errorf("%d places: a place at once: %v", places, got.turn == nil)
		}
	}
}

// A request of exactly 64 KiB does not count against the memory of unfinished requests.
func TestOnlyLargeRequestsCountWhole(t *testing.T) {
	s := New(newSource())
	s.countWhole(largeRequest)
	if got := s.unfinished.Used(); got != 0 {
		t.Errorf("%d bytes", got)
	}
	s.countWhole(largeRequest + 1)
	if got := s.unfinished.Used(); got != largeRequest+1 {
		t.Errorf("%d bytes", got)
	}
	s.countWhole(-largeRequest - 1)
	if got := s.unfinished.Used(); got != 0 {
		t.Errorf("%d bytes are left", got)
	}
}

// After half of the lines for all addresses, an address has one line, so that the first warning of another is seen.
func TestLinesOfAnAddress(t *testing.T) {
	within(t, "SAFE-6", func(t *testing.T) {
		var book logbook
		s := New(newSource(), book.at(slog.LevelWarn))
		lines := func(peer net.Addr, n int) (allowed int) {
			for range n {
				if s.addressLog.allow(s, &Stream{ID: 7, Peer: peer}) {
					allowed++
				}
			}
			return allowed
		}
		address := func(i byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, i), Port: 1} }
		if got := lines(nil, maxWarned+5); got != maxWarned {
			t.Errorf("without an address: %d lines", got)
		}
		for i := range byte(maxWarnedTotal/2/maxWarned - 1) {
			if got := lines(address(i), maxWarned+5); got != maxWarned {
				t.Fatalf("address %d has %d lines", i, got)
			}
		}
		if got := lines(address(99), 5); got != 1 {
			t.Errorf("an address has %d lines after half of all lines are used", got)
		}
		time.Sleep(dedup.Within + time.Second)
		synctest.Wait()
		if log := book.String(); !strings.Contains(log, "repeated=4 peer=10.0.0.99:1") || !strings.Contains(log, "repeated=5\n") {
			t.Errorf("left-out lines are not counted:\n%s", log)
		}
	})
}
