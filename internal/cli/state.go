package cli

import (
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
)

// StateDirFlag is the flag of the commands that have to agree on it.
func StateDirFlag(f *pflag.FlagSet, root *string) {
	// Where there is no such directory, none is kept unless somebody says where.
	fallback, _ := lastgood.Root()
	f.StringVar(root, "state-dir", fallback, "`directory` that stores the last good configuration, in a folder for each DIR; empty: store nothing")
	f.Lookup("state-dir").DefValue = "/var/lib/chancery for root, else ~/.local/state/chancery"
}
