package xdsclient

import (
	"fmt"
	"math"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/xds"
)

// Limits limit the memory that an upstream can take from its client (SAFE-14), in bytes. Zero: by the memory limit.
type Limits struct {
	All      int // all resources
	Response int // a response
}

// The flags of the limits.
const (
	AllFlag      = "max-upstream"
	ResponseFlag = "max-upstream-response"
)

// minLimit is the minimum of the limits.
const minLimit = 64 << 10

// Register adds the flags of the limits. The text before is the beginning of their help.
func (l *Limits) Register(f *pflag.FlagSet, before string) {
	cli.SizeFlag(f, &l.All, AllFlag, 0, before+"maximum total `SIZE` of the resources of the upstream, plus 3 KiB for each and 1 KiB for each alias; a response with more is refused, and the last good resources stay")
	f.Lookup(AllFlag).DefValue = "0: 1/4 of the memory limit, or 1/8 of the memory of the machine if there is no limit"
	cli.SizeFlag(f, &l.Response, ResponseFlag, 0, before+"maximum `SIZE` of a response of the upstream, plus 512 bytes for each resource; a larger one is refused, and the last good resources stay")
	f.Lookup(ResponseFlag).DefValue = "0: 1/32 of the memory limit, between 4 MiB and 256 MiB"
}

// Check returns an error of usage.
func (l *Limits) Check() error {
	for _, x := range []struct {
		flag    string
		n, most int
	}{{AllFlag, l.All, min(1<<40, math.MaxInt)}, {ResponseFlag, l.Response, math.MaxInt32}} {
		switch {
		case x.n > x.most:
			return fmt.Errorf("--%s: too large: must be %d or less", x.flag, x.most)
		case x.n != 0 && x.n < minLimit:
			return fmt.Errorf("--%s: %s is too small for any upstream: must be %s or more", x.flag, cli.SizeText(int64(x.n)), cli.SizeText(minLimit))
		}
	}
	return nil
}

// DeriveFrom sets the limits that the user has not given.
func (l *Limits) DeriveFrom(m cli.Memory) {
	total := m.Total()
	if l.All == 0 {
		l.All = int(total / 4)
	}
	if l.Response == 0 {
		l.Response = 256 << 20
		if total > 0 {
			l.Response = int(min(max(total/32, 4<<20), 256<<20))
		}
	}
}

// Apply limits the responses of a server, and returns the limit of all its resources. The program is named in refusals.
func (l *Limits) Apply(s *Server, program string) xds.MemoryLimit {
	hint := func(flag string) string { return "the " + program + " has --" + flag + " for more" }
	s.Response = xds.MemoryLimit{Bytes: l.Response, Hint: hint(ResponseFlag)}
	return xds.MemoryLimit{Bytes: l.All, Hint: hint(AllFlag)}
}
