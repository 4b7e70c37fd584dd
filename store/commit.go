package store

import (
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A Commit says what a transaction changed.
type Commit struct {
	Seq     uint64    // 1 for the first commit of a store; no number is left out
	Time    time.Time // when it was committed
	Changes []Change  // by group, and by type in push order; empty if no table changed
}

// A Change is what a commit changed of one type in one group.
type Change struct {
	Group   string
	Type    *xds.Type
	Set     int    // resources that are new or different
	Removed int    // resources that are no more
	Version string // of the type, after the commit
}
