package store

import (
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A Commit describes what a transaction changed.
type Commit struct {
	Seq     uint64    // 1 for the first commit of a store, then 2, 3, …
	Time    time.Time // time of the commit
	Changes []Change  // by group, and within a group by type in push order; empty if no table changed
}

// A Change describes the changes of a commit to one type in one group.
type Change struct {
	Group   string
	Type    *xds.Type
	Set     int    // new or changed resources
	Removed int    // removed resources
	Version string // of the type, after the commit
}
