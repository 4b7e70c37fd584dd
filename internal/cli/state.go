package cli

import (
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
)

// StateDirFlag adds --state-dir for a command that uses the state directory.
func StateDirFlag(f *pflag.FlagSet, root *string) {
	// On an error the default is empty: nothing is stored unless the flag is given.
	fallback, _ := lastgood.Root()
	f.StringVar(root, "state-dir", fallback, "`directory` that stores the last good configuration, in a folder for each DIR; empty: store nothing")
	f.Lookup("state-dir").DefValue = "/var/lib/chancery for root, else ~/.local/state/chancery"
}
