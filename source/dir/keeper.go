package dir

import "github.com/chancery-xds/chancery/internal/disk/lastgood"

// A LastGood is what a source has committed, as it is kept for the next start: what
// [Options.Keep] is given, and [Source.Restore] takes. What is in it may change.
type LastGood = lastgood.Config

// A Keeper keeps on disk what a source has committed. So a program that starts on bad
// files, or none, serves what it did before. Made by [OpenKeeper]:
//
//	src := dir.New("config", st, dir.Options{Keep: keeper.Keep})
//	if last, err := keeper.Load(); err == nil {
//		err = src.Restore(last) // on an error, nothing is restored
//	}
//	_, err = src.Load() // on an error, what was restored is served
//	go keeper.Run(ctx)
//	src.Run(ctx)
//
// Keep takes a configuration and does not wait: Run writes the newest, and the last before it
// returns. Save writes one at once. Load returns what was kept last; os.ErrNotExist says that
// there is none. Kept reports whether this program keeps the folder, and could write what it was
// given last; Locked is closed when no other program keeps it. One goroutine may use a keeper,
// besides Keep and Kept. All resources are kept, with their secrets, unless the field
// WithoutSecrets is set; the field Log is told of trouble.
type Keeper = lastgood.Keeper

// OpenKeeper returns a keeper for a folder, which it makes, for this user alone. While
// another program keeps the same folder it reads what that one writes, and writes nothing.
func OpenKeeper(folder string) (*Keeper, error) { return lastgood.Open(folder) }
