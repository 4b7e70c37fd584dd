package protocol

import (
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/names"
	"github.com/chancery-xds/chancery/protocol/internal/sent"
	"github.com/chancery-xds/chancery/xds"
)

// The words of package names for all rooms. Many functions have a variable that is called names.
type entry = names.Entry

// The words of package sent for all rooms.
type (
	item  = sent.Item
	cargo = sent.Cargo
)

var absent, others = names.Absent, names.Others

const held = names.Held

func stands(s *xds.Stamp) bool  { return names.Stands(s) }
func known(s *xds.Stamp) bool   { return names.Known(s) }
func same(a, b *xds.Stamp) bool { return names.Same(a, b) }

func itemByName(a, b item) int { return sent.ItemByName(a, b) }

// sooner returns the earlier of two times. The zero time means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
