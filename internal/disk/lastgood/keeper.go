// Package lastgood stores the configuration on disk that a server served last. A server that starts
// with invalid, incomplete or missing files then has a configuration to serve. It implements the
// requirement: "A start on nothing, on mistakes or on half a configuration tells no client that
// anything is gone: the last good is served, or nothing is answered."
package lastgood

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/faults"
	"github.com/chancery-xds/chancery/xds"
)

// MaxBytes is the size of the largest configuration that is stored.
const MaxBytes = 1 << 30

// Root returns the state directory of this user's programs: $STATE_DIRECTORY as set by systemd,
// /var/lib/chancery for root, or the directory of the user.
func Root() (string, error) {
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" {
		return filepath.SplitList(dir)[0], nil
	}
	if runtime.GOOS != "windows" && os.Geteuid() == 0 {
		return "/var/lib/chancery", nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "chancery"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state", "chancery"), nil
}

var unsafeCharacters = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// Folder returns the folder below root for a served directory. It uses the absolute path without
// resolving links, because the target of a link may change.
func Folder(root, served string) (string, error) {
	abs, err := filepath.Abs(served)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(abs))
	name := unsafeCharacters.ReplaceAllString(filepath.Base(abs), "_")
	return filepath.Join(root, name[:min(len(name), 40)]+"-"+hex.EncodeToString(sum[:6])), nil
}

// A Keeper stores the last good configuration of one served directory. Only one goroutine may use it,
// except Keep, Storing, Faults and SaveAccepted.
type Keeper struct {
	Log *slog.Logger // slog.Default() if nil

	// WithoutSecrets leaves out each type with a secret in one of its resources. It only stores that
	// there are such resources. Types that clients subscribe to as a whole cannot be left out: if one
	// of these has a secret, nothing is stored.
	WithoutSecrets bool

	dir    string
	lock   *disk.Held    // used by Open, then by Run or Save; nil: another program has the lock
	locked chan struct{} // closed when this keeper has the lock
	file   *growingFile  // used as held; nil: write the whole file next time
	newest chan Config   // has one slot: the newest configuration that is not written
	failed atomic.Bool   // the last write of the configuration failed
	fault  faults.Record // the same, if the system failed

	replacing sync.Mutex // held while a file is replaced: [disk.Replace] has one name for all new files
}

// Open returns a keeper for a folder. It makes the folder, private to this user. While another program
// has the lock of the folder, the keeper can load the files of that program, and writes nothing.
func Open(dir string) (*Keeper, error) {
	k := &Keeper{Log: slog.Default(), dir: dir, locked: make(chan struct{}), newest: make(chan Config, 1)}
	if err := k.Lock(); err != nil && !errors.Is(err, disk.ErrBusy) {
		return nil, err
	}
	return k, nil
}

// Lock makes the folder if it does not exist, and locks it. If the folder was removed and made again,
// the old lock does not protect it, so Lock locks the new one.
func (k *Keeper) Lock() error {
	if k.lock != nil && k.lock.Holds(k.dir) {
		return nil
	}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return err
	}
	if err := makePrivate(k.dir); err != nil {
		return err
	}
	held, err := disk.Lock(k.dir)
	if err != nil {
		return err
	}
	if k.lock == nil {
		close(k.locked)
	} else {
		k.lock.Unlock()
	}
	k.lock = held
	return nil
}

// Storing reports whether this keeper has the lock, and its last write of the configuration succeeded. Any goroutine may
// call it at any time.
func (k *Keeper) Storing() bool {
	select {
	case <-k.locked:
		return !k.failed.Load()
	default:
		return false
	}
}

// Faults returns the error of the system, such as a full disk, for which the configuration is not stored. Any goroutine
// may call it at any time.
func (k *Keeper) Faults() []faults.Fault { return k.fault.Present() }

// Locked is closed when this keeper has the lock.
func (k *Keeper) Locked() <-chan struct{} { return k.locked }

// Release releases the folder if Run was not called, and removes it if it is empty.
func (k *Keeper) Release() {
	if k.lock == nil {
		return // another program has the lock
	}
	if k.lock.Holds(k.dir) {
		if all, err := os.ReadDir(k.dir); err == nil && len(all) == 1 && all[0].Name() == labelName {
			_ = os.Remove(filepath.Join(k.dir, labelName)) // an error leaves the folder, too
		}
		_ = os.Remove(k.dir) // fails if the folder is not empty
	}
	k.lock.Unlock()
}

// Dir returns the folder.
func (k *Keeper) Dir() string { return k.dir }

const name = "last-good"

// Load returns the configuration that was stored last. The error is [os.ErrNotExist] if there is none.
func (k *Keeper) Load() (Config, error) {
	data, err := k.read(name, MaxBytes)
	if err != nil {
		return Config{}, err
	}
	c, err := parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", filepath.Join(k.dir, name), err)
	}
	return c, nil
}

// read returns the content of a file in the folder. It does not use a file of another user.
func (k *Keeper) read(name string, most int64) ([]byte, error) {
	data, info, err := readIn(k.dir, name, most)
	if err == nil && !trusted(info) {
		err = fmt.Errorf("%s belongs to another user, and is not used", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.dir, err)
	}
	return data, nil
}

// readIn is readFile for a folder that is not open.
func readIn(folder, name string, most int64) ([]byte, fs.FileInfo, error) {
	inside, err := os.OpenRoot(folder)
	if err != nil {
		return nil, nil, err
	}
	defer inside.Close() //nolint:errcheck // it was only read
	return readFile(inside, name, most)
}

// readFile returns the content and the properties of a file in a folder. It refuses files that Chancery cannot have
// written: they are not regular, or have more than most bytes. The error has the name.
func readFile(inside *os.Root, name string, most int64) ([]byte, fs.FileInfo, error) {
	info, err := inside.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, nil, fmt.Errorf("%s: Chancery did not write this file", name)
	}
	f, err := disk.OpenNowIn(inside, name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most))
	return data, info, err
}

// Keep asks Run to write a configuration. It does not wait. Run writes only the newest one.
func (k *Keeper) Keep(c Config) {
	select {
	case <-k.newest:
	default:
	}
	select {
	case k.newest <- c:
	default: // a newer one has the slot
	}
}

// retry is how often to try again to lock the folder, and to write after an error of the system.
const retry = 5 * time.Second

// WaitForLock tries to lock the folder until it succeeds or ctx is done. It reports whether this keeper has the
// lock.
func (k *Keeper) WaitForLock(ctx context.Context) bool {
	for k.lock == nil {
		select {
		case <-time.After(retry):
			_ = k.Lock()
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Run writes configurations until ctx is done, and writes the last one before it returns. It writes at
// most half of the time, so that frequent changes of a large configuration do not keep the disk busy.
// After an error of the system, such as a full disk, it tries again, because the next change may be days
// away.
func (k *Keeper) Run(ctx context.Context) {
	other := k.lock == nil
	if other {
		k.Log.Warn("another server of the same directory stores the last good configuration: until it ends, this one stores none", "state", k.dir,
			"hint", "chancery reload reaches the other server; give each its own --state-dir")
	}
	if !k.WaitForLock(ctx) {
		return
	}
	defer func() { k.lock.Unlock() }()
	if other {
		k.Log.Info("the other server has ended: this one now stores the last good configuration", "state", k.dir)
	}
	logged := ""
	var c Config               // the newest one
	var again <-chan time.Time // when to try again; nil: it was written, or can never be
	for {
		select {
		case c = <-k.newest:
		case <-again:
		case <-ctx.Done():
			select {
			case c = <-k.newest:
				k.save(c, &logged)
			default:
				if again != nil {
					k.save(c, &logged)
				}
			}
			return
		}
		start := time.Now()
		again = nil
		if k.save(c, &logged) {
			again = time.After(retry)
		}
		select {
		case <-time.After(max(time.Since(start), 100*time.Millisecond)):
		case <-ctx.Done():
		}
	}
}

// save writes a configuration, and logs a failure unless logged has the same text. It reports whether a
// retry may succeed.
func (k *Keeper) save(c Config, logged *string) (refused bool) {
	err := k.Save(c)
	k.failed.Store(err != nil)
	_, refused = errors.AsType[syscall.Errno](err)
	refused = refused || errors.Is(err, disk.ErrBusy)
	if refused {
		k.fault.Set(notStored, err)
	} else {
		k.fault.Set("", nil)
	}
	switch {
	case err == nil:
		*logged = ""
	case err.Error() != *logged:
		*logged = err.Error()
		k.Log.Error(notStored, "error", err)
	}
	return refused
}

const notStored = "the last good configuration is not stored: a restart with invalid files would serve an older one, or nothing"

// Save writes a configuration, as a whole or not at all. It fails while another program has the lock
// of the folder. A program that does not call Run may call Save again later.
func (k *Keeper) Save(c Config) error {
	if err := k.Lock(); err != nil {
		return err
	}
	path := filepath.Join(k.dir, name)
	if k.WithoutSecrets {
		var err error
		c, err = c.withoutSecrets()
		if err != nil {
			// The stored file may have secrets, or be outdated.
			if gone := os.Remove(path); !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
			return err
		}
	}
	file := k.file
	k.file = nil // after a failed write, the content of the file is unknown
	if !file.appendChange(path, c) {
		k.replacing.Lock()
		defer k.replacing.Unlock()
		if err := disk.Replace(path, 0o600, func(w io.Writer) (err error) {
			file, err = c.write(&limitedWriter{w, MaxBytes})
			return err
		}); err != nil {
			return err
		}
	}
	k.file = file
	return nil
}

// withoutSecrets leaves out each type with a secret in one of its resources. Leaving out single
// resources would look like their removal. It fails for a type that clients subscribe to as a whole,
// because their subscription would get no resources.
func (c Config) withoutSecrets() (Config, error) {
	root, err := Group{Types: c.Types, Gone: c.Gone}.withoutSecrets()
	if err != nil {
		return c, err
	}
	c.Types, c.Gone = root.Types, root.Gone
	c.Groups = slices.Clone(c.Groups)
	for i, g := range c.Groups {
		c.Groups[i], err = g.withoutSecrets()
		if err != nil {
			return c, fmt.Errorf("group %q: %w", g.Name, err)
		}
	}
	return c, nil
}

// withoutSecrets leaves out types with secrets of one group.
func (c Group) withoutSecrets() (Group, error) {
	withheld := map[string]bool{xds.Secret.URL: true, xds.Secret.Legacy().URL: true}
	all := c.Types
	c.Types = nil
	for _, t := range all {
		i := slices.IndexFunc(t.Resources, hasSecret)
		switch {
		case i >= 0 && t.Implicit:
			return c, fmt.Errorf("%s %q contains a secret, and cannot be left out as a Secret (SDS) can", t, t.Resources[i].Name)
		case i >= 0 || withheld[t.URL]:
			withheld[t.URL] = true
			t.Withheld, t.Resources = true, nil
		}
		c.Types = append(c.Types, t)
	}
	gone := c.Gone
	c.Gone = nil
	for _, t := range gone {
		if !withheld[t.URL] {
			t.Resources = slices.DeleteFunc(slices.Clone(t.Resources), hasSecret)
			c.Gone = append(c.Gone, t)
		}
	}
	return c, nil
}

func hasSecret(r Resource) bool { return r.Secret }
