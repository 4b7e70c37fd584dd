package dir

import "github.com/chancery-xds/chancery/internal/disk/lastgood"

// A LastGood is the configuration that a source committed last, in the form that is stored on disk for
// the next start. [Options.Keep] receives it, and [Source.Restore] takes it. Its fields may change in a later version.
type LastGood = lastgood.Config

// A Keeper stores the committed configuration of a source on disk. A program that starts with missing
// or invalid files then serves the configuration from before. [OpenKeeper] makes one:
//
//	src := dir.New("config", st, dir.Options{Keep: keeper.Keep})
//	if last, err := keeper.Load(); err == nil {
//		err = src.Restore(last) // on an error, nothing is restored
//	}
//	_, err = src.Load() // on an error, the restored configuration is served
//	go keeper.Run(ctx)
//	src.Run(ctx)
//
// Keep takes a configuration and does not wait. Run writes the newest one, and writes the last one
// before it returns. Save writes one at once. Load returns the configuration that was stored last;
// os.ErrNotExist means that there is none. Storing reports whether this program owns the folder and the
// last write succeeded. Locked is closed when no other program owns the folder.
//
// Only one goroutine may use a keeper, except Keep and Storing. The keeper stores all resources with
// their secrets, unless the field WithoutSecrets is set. It logs problems to the field Log.
type Keeper = lastgood.Keeper

// OpenKeeper returns a keeper for a folder. It makes the folder, readable only for the current user.
// While another program owns the same folder, the keeper reads the files of that program, and writes
// nothing.
func OpenKeeper(folder string) (*Keeper, error) { return lastgood.Open(folder) }
